"""Measured points in virtual time: the window that is measured, the scenario of a row, and what the tables say of rows."""

from __future__ import annotations

from typing import Any

import pytest

from bench.report import rows as results
from bench.report import tables_simulated
from bench.suites.virtual import predicted_suite
from bench.suites.virtual.predicted_suite import window_rate
from outrider.cluster.simulate.simulated_service import SimulatedMode, SimulatedRun
from outrider.cluster.simulate.traffic import Answers, Asked

MACHINE = {"cores": 2, "commit": "abc", "two_at_once": 1.0}

ROW: dict[str, Any] = {
    "profile": "25ms+20us",
    "draft_profile": "1.5ms+5us",
    "law": "agree85",
    "drafting": "always",
    "drafters": 1,
    "level": 2,
    "unit_tokens_per_s": 2 / 0.02504,
    "temperature": 0.8,
    "max_tokens": 40,
    "runs": 1,
    "machine": MACHINE,
    "date": "2026-01-01",
    **{
        way: {
            "units": units,
            "tokens_per_s": units * 2 / 0.02504,
            "tokens_per_round": tokens,
            "cpu_us": {"target": 900.0, "drafter": 2000.0, "coordinator": 300.0},
        }
        for way, units, tokens in (("plain", 0.9, 1.0), ("speculative", 3.5, 4.5))
    },
}


def _run(ended_s: tuple[float, float], until_s: float = 12.0) -> SimulatedRun:
    """Two waves of a request or two; a token each tenth of a second."""
    answers = Answers()
    began_s = {("wave", 0, 0): 0.0, ("wave", 1, 0): 6.0, ("wave", 1, 1): 6.0}
    ends_s = {("wave", 0, 0): 5.0, ("wave", 1, 0): ended_s[0], ("wave", 1, 1): ended_s[1]}
    for key, began in began_s.items():
        end = ends_s[key] if ends_s[key] < until_s else None
        answers.requests[key] = Asked(began, ended_s=end)
    for tenth in range(1, round(10 * until_s)):
        for key, began in began_s.items():
            if began < tenth / 10 <= ends_s[key]:
                answers.times_s.append(tenth / 10)
                answers.keys.append(key)
                answers.tokens.append(1)
    return SimulatedRun(
        mode=SimulatedMode.PLAIN,
        seconds=until_s,
        answers=answers,
        outputs={},
        logs={},
        wire_bytes=0,
        cpu_s={},
        device_s={},
        digest="",
        num_events=0,
    )


def test_the_window_is_that_of_all_requests() -> None:
    """From the sixteenth token of each to the first end: 2.4 s in which two requests get ten tokens a second."""
    assert window_rate(_run((10.0, 11.0)), 1) == pytest.approx(20.0)


def test_a_window_that_has_not_ended_is_none() -> None:
    """More virtual time is needed."""
    assert window_rate(_run((20.0, 20.0)), 1) is None


def test_requests_that_are_too_short_have_no_window() -> None:
    """As in a measurement, that is an error."""
    with pytest.raises(RuntimeError, match="there is no window"):
        window_rate(_run((7.0, 11.0)), 1)


def test_a_measured_point_in_virtual_time() -> None:
    """Plain decoding cannot be faster than the device, and speculation is faster than that; every part of the row is told."""
    row = predicted_suite.predicted(ROW)
    assert 0.8 < row["plain"]["predicted"] <= 1.0
    assert row["speculative"]["predicted"] > 1.5
    assert row["speculative"]["error"] == pytest.approx(row["speculative"]["predicted"] / 3.5 - 1.0)
    assert row["speculative"]["cpu_us"]["drafter"]["predicted"] > 0.0
    assert row["different"] == ""
    text = tables_simulated.predicted([{**row, "machine": MACHINE, "date": "2026-01-02"}])
    assert "| 25ms+20us / 1.5ms+5us, agree85 | always | 2 | 0.90 / " in text


def test_drafting_is_that_of_the_row() -> None:
    """A drafter that was made to work is made to here."""
    assert not predicted_suite.scenario(ROW, 1.0).adaptive
    assert predicted_suite.scenario({**ROW, "drafting": "adaptive"}, 1.0).adaptive


def test_nothing_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to do, and no traceback."""
    monkeypatch.setattr(results, "read", lambda suite: [ROW])
    with pytest.raises(SystemExit, match="run `python -m bench emulated` first"):
        next(predicted_suite.run(levels=[64]))


def _point(eta: float, window: float | None, over: float) -> dict[str, Any]:
    return {
        "law": 70,
        "draft_cost": 0.07,
        "round_trip": 0.5,
        "sessions": 16,
        "rows": "flat",
        "speed_up": 2.0 * over,
        "eta": eta,
        "window": window,
        "over_lockstep": over,
        "broken": [],
        "machine": MACHINE,
    }


def test_what_is_wanted_of_the_grid_and_not_met_is_told() -> None:
    """One point can be enough."""
    good, bad = _point(0.95, 1.1, 1.5), _point(0.7, 0.9, 0.9)
    text = tables_simulated.grid([good, _point(0.92, None, 1.4)])
    assert "**no**" not in text
    assert "1 points had no 400 rounds, and 2.80 times plain decoding at least." in text
    text = tables_simulated.grid([good, good, bad])
    assert text.count("**no**") == 4
    assert "0.70 at least, below in 1 of 3" in text
    assert "0.900 at least, below in 1 of 3" in text
    assert "| requests at once: 16 | 3 | 0.95 | 0.70 |" in tables_simulated.grid_parts(
        [good, good, bad]
    )


def test_different_outputs_of_the_grid_are_told() -> None:
    """Loudly."""
    broken = {**_point(0.95, 1.1, 1.5), "broken": ["pipelined differs from plain decoding"]}
    assert "**1 points have outputs that differ.**" in tables_simulated.grid([broken])
