"""The report as it is shown and kept."""

from __future__ import annotations

from pathlib import Path

from outrider.actors.train.loop.evaluate import Agreement
from outrider.actors.train.loop.training_report import (
    TrainReport,
    as_markdown,
    as_table,
    read_report,
    write_report,
)

REPORT = TrainReport(
    {"target": 5, "draft": 1},
    {"gsm8k": 1.234, "long": 2.0},
    {"draft": {"gsm8k": Agreement(1.5, 0.625, 0.9, 0.5), "own": Agreement(1, 1, 1, 1)}},
)


def test_markdown_has_a_line_a_source() -> None:
    """Losses in nats, rates in percent, blanks where nothing was measured."""
    expected = (
        "| source | target loss | draft: first | draft: four | draft: T=1 |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| gsm8k | 1.23 | 62 % | 90 % | 50 % |\n"
        "| long | 2.00 |  |  |  |\n"
        "| own |  | 100 % | 100 % | 100 % |"
    )
    assert expected == as_markdown(REPORT)


def test_table_has_the_same_cells() -> None:
    """The terminal shows what the card shows."""
    assert (len(as_table(REPORT).columns), as_table(REPORT).row_count) == (5, 3)


def test_report_comes_back(tmp_path: Path) -> None:
    """Nothing is rounded on disk."""
    write_report(tmp_path / "report.json", REPORT)
    assert read_report(tmp_path / "report.json") == REPORT
