"""Where the time of a run goes, from a timeline with known answers."""

from __future__ import annotations

import pytest
from tests.client.timeline.build import Made, drafting, service, span

from bench.report.where import told, where


def test_shares_of_the_time_with_sessions() -> None:
    """Idle time is nobody's loss: what remains adds up to the whole, cause by cause."""
    found = told(service().timeline(), unit_s=0.005)
    # 75 of 100 ms had a session: 20 prefill, 4 waiting, 20 verifying, 31 between.
    assert found["target"] == pytest.approx(
        {
            "prefill": 20 / 75,
            "waits for candidates": 4 / 75,
            "verify": 20 / 75,
            "between passes": 31 / 75,
        }
    )
    assert sum(found["drafter"].values()) == pytest.approx(1.0)
    assert found["drafter"]["out of credits"] == pytest.approx(0.25)


def test_a_drafter_without_sessions_is_at_rest() -> None:
    """While drafters do not pay, sessions have none attached; that is the same rest as of those that were sent to it."""
    made = Made()
    made.source("t", "target", span("verify", 0, 100))
    made.source(
        "d",
        "drafter",
        drafting("draft", 0, 20),
        drafting("sent to rest", 20, 30),
        drafting("no session", 50, 40),
    )
    found = told(made.timeline(), unit_s=0.0)["drafter"]
    assert found == pytest.approx({"draft": 0.2, "sent to rest": 0.7, "between passes": 0.1})


def test_speed_of_passes_alone() -> None:
    """Tokens after the prompts in plain passes' time, over the time verified: 5 ms each, 20 ms in all."""
    timeline = service().timeline()
    found = told(timeline, unit_s=0.005)
    assert found["passes_alone"] == pytest.approx(told(timeline, unit_s=0.01)["passes_alone"] / 2)
    assert found["passes_alone"] > 0
    assert told(timeline, unit_s=0.0)["passes_alone"] == 0


def test_table_has_a_line_for_each_way() -> None:
    """Rows without a timeline are left out; no such row, no table."""
    time = told(service().timeline(), unit_s=0.005)
    row = {"target": "as shipped", "temperature": 0.8, "time": {"speculative": time}}
    near = {
        **row,
        "delay_ms": "quarter",
        "added_ms": 3.0,
        "time": {"pipelined": time, "lockstep": time},
    }
    text = where([row, near, {"target": "old", "temperature": 0.0}])
    lines = text.splitlines()
    assert len(lines) == 5
    assert lines[2].startswith(
        "| as shipped, T 0.8 | speculative | 27% | 27% | 5% | 0% | 41% | 0% |"
    )
    assert lines[3].startswith("| 3 ms away, T 0.8 | pipelined |")
    assert len({line.count("|") for line in lines}) == 1
    assert where([{"target": "old", "temperature": 0.0}]) == ""
