"""Tables and plots from rows, and pages with markers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.ideals.efficiency import best_tree, told
from bench.report import plots, tables, tables_of_load
from bench.report.svg import Axis, Series, plot, ticks
from bench.report.written_report import BLOCKS, DRAWN, PAGES, PLOTS, block, filled, rows_of

MACHINE = {
    "cpu": "a processor",
    "cores": 2,
    "torch": "2",
    "transformers": "5",
    "ray": "2",
    "commit": "abc",
}
COMMON = {"machine": MACHINE, "date": "2026-01-01", "runs": 3, "target": "as shipped", "layers": 8}
DELAY: dict[str, Any] = {
    **COMMON,
    "temperature": 0.0,
    "prompts": 5,
    "between": "relay",
    "unit_ms": 25.0,
    "different": {"pipelined": [], "lockstep": []},
    "plain_tokens_per_s": 39.0,
    "stale_share": 0.1,
    "bytes_per_token": 200.0,
    "round_trip": 0.5,
}


def _delay(added_ms: float, pipelined: float) -> dict[str, Any]:
    return {
        **DELAY,
        "added_ms": added_ms,
        "round_trip_ms": 2 * added_ms,
        "decode_speed_up": {"pipelined": pipelined, "lockstep": 1.5},
        "over_lockstep": pipelined / 1.5,
        "ideal": 3.0,
        "lockstep_ideal": 2.0,
        "eta": pipelined / 3.0,
        "rounds": {"pipelined": 9, "lockstep": 9},
        "plain_passes": {"pipelined": 1, "lockstep": 0},
    }


def _load(concurrency: int) -> dict[str, Any]:
    latency = {
        "tokens_per_s": 100.0 * concurrency,
        "tokens_per_pass": 2.0,
        **{f"{what}_{p}_s": 0.01 for what in ("first_token", "token") for p in ("p50", "p99")},
    }
    return {
        **COMMON,
        "part": "shipped",
        "temperature": 0.0,
        "concurrency": concurrency,
        "lengths": "mixed",
        "max_tokens": 48,
        "different": [],
        "plain": latency,
        "speculative": latency,
        "speed_up": 1.0,
        "spread": 0.05,
        "ideal": 2.0,
        "eta": 0.5,
        "transformers": {"unavailable": "ValueError: no"},
    }


def test_rows_in_the_order_of_their_delay() -> None:
    """Parts may be run in any order."""
    text = tables.delay([_delay(20.0, 2.0), _delay(1.0, 2.5)])
    assert text.index("| 1 ms") < text.index("| 20 ms")
    assert "Every output was that of plain decoding" in text


def test_different_outputs_are_told() -> None:
    """Loudly."""
    row = _delay(1.0, 2.5)
    row["different"] = {"pipelined": [{"prompt": 3}], "lockstep": []}
    assert "**1 outputs differ from plain decoding**" in tables.delay([row])


def test_both_temperatures_of_a_drafter_are_in_a_line() -> None:
    """And one that differs is counted there."""
    row = {
        **COMMON,
        "drafter": "draft",
        "condition": "disturbed",
        "prompts": 100,
        "max_tokens": 64,
        "tokens": 6400,
        "different": [],
        "near_ties_speculative": 0,
        "tokens_per_pass": 2.0,
        "accepted": 3000,
        "restarts": 4,
        "target_restarts": 1,
        "cuts": 3,
        "resyncs": 50,
    }
    rows = [
        {**row, "temperature": 0.8, "different": [{"prompt": 3}]},
        {**row, "temperature": 0.0, "resyncs": 60},
    ]
    text = tables.equality(rows)
    assert "| draft | yes | 6400 / 6400 | **0 / 1** |" in text
    assert "| 60 / 50 |" in text
    assert "**1 outputs differ from plain decoding**" in text


def test_cores_that_are_not_two_are_told() -> None:
    """Rows that do not know, of an older form, are not counted as rows that do."""
    rows = [_load(1), _load(2), _load(4)]
    assert "on one alone" not in tables_of_load.load(rows)
    for row, ratio in zip(rows, (1.9, 1.02), strict=False):
        row["machine"] = {**MACHINE, "two_at_once": ratio}
    text = tables_of_load.load(rows)
    assert "took 1.02 to 1.90 times as long as on one alone, as far as rows tell (2 of 3)." in text
    assert "took 1.90 times as long as on one alone." in tables_of_load.load(rows[:1])


def test_what_did_not_run_says_why() -> None:
    """A missing baseline is no empty cell without a word."""
    text = tables_of_load.load([_load(1), _load(2)])
    assert "continuous batching did not run: ValueError: no." in text


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_a_suite_that_was_not_run(name: str) -> None:
    """No rows, no table."""
    assert BLOCKS[name][1]([]) == ""


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_no_rows_no_plot(name: str) -> None:
    """Nor an empty picture."""
    assert DRAWN[name][1]([]) is None


def test_plots_are_xml() -> None:
    """And hold a line for each way."""
    picture = plots.delay([_delay(0.0, 2.5), _delay(5.0, 2.0)])
    assert picture is not None
    root = ElementTree.fromstring(picture)
    lines = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 5
    assert plots.load([_load(1), _load(2)]) is not None


def test_text_of_a_plot_is_escaped() -> None:
    """A title may hold anything."""
    series = [Series(name="a<b", points=[(0.0, 1.0)])]
    picture = plot("x & y", series, x=Axis(label="<"), y=Axis(label=">"))
    assert "a&lt;b" in picture
    ElementTree.fromstring(picture)


def test_a_plot_needs_a_point() -> None:
    """Otherwise there is no scale."""
    with pytest.raises(ValueError, match="nothing to plot in 'empty'"):
        plot("empty", [Series(name="a", points=[])], x=Axis(label=""), y=Axis(label=""))


@pytest.mark.parametrize(
    ("least", "greatest", "expected"),
    [(0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.0, 83.0, [0.0, 20.0, 40.0, 60.0, 80.0])],
)
def test_ticks_are_round(least: float, greatest: float, expected: list[float]) -> None:
    """About five of them."""
    assert ticks(least, greatest) == pytest.approx(expected)


def test_markers_are_filled() -> None:
    """Each with its own block; the text around stays."""
    page = "a\n<!-- bench:one:begin -->\nold\n<!-- bench:one:end -->\nb"
    assert filled(page, {"one": "new"}) == page.replace("old", "new")


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("<!-- bench:two:begin --><!-- bench:two:end -->", "names no block; there are one"),
        ("<!-- bench:one:begin -->", "has no <!-- bench:one:end -->"),
    ],
)
def test_wrong_markers(page: str, message: str) -> None:
    """A misspelt marker must not leave an old table standing."""
    with pytest.raises(ValueError, match=message):
        filled(page, {"one": "new"})


def test_the_pages_have_every_block() -> None:
    """And no marker without one."""
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    for name in BLOCKS:
        assert any(f"<!-- bench:{name}:begin -->" in page for page in pages), name
    for page in pages:
        filled(page, {name: block(name) for name in BLOCKS})


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_plots_are_those_of_the_rows(name: str) -> None:
    """Whoever measures again runs `python -m bench report`, too."""
    suite, draw = DRAWN[name]
    assert (PLOTS / f"{name}.svg").read_text(encoding="utf-8") == draw(rows_of(suite))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_tables_are_those_of_the_rows(page: Path) -> None:
    """As the plots."""
    text = page.read_text(encoding="utf-8")
    assert filled(text, {name: block(name) for name in BLOCKS}) == text


def test_best_tree_is_the_one_that_pays_most() -> None:
    """Trees that were never met have no cost and do not count."""
    assert best_tree({1: (1.6, 1.1), 4: (2.4, 1.5), 16: (3.0, 2.4), 0: (9.0, 0.0)}) == (2.4, 1.5)


def test_long_runs_are_told_together() -> None:
    """A result row stays short."""
    assert told({0: 0.5, 3: 0.25, 30: 0.15, 99: 0.1}) == {
        "0": 0.5,
        "3": 0.25,
        "24+": pytest.approx(0.25),
    }
