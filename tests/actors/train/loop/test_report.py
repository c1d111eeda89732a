"""The report as it is shown and kept."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from outrider.actors.train.loop.evaluate import Agreement
from outrider.actors.train.loop.training_report import (
    TrainReport,
    as_table,
    write_report,
)

REPORT = TrainReport(
    {"target": 5, "draft": 1},
    {"gsm8k": 1.234, "long": 2.0},
    {"draft": {"gsm8k": Agreement(1.5, 0.625, 0.9, 0.5), "own": Agreement(1, 1, 1, 1)}},
)


def test_the_table_has_a_line_a_source() -> None:
    """Losses in nats, rates in percent, blanks where nothing was measured."""
    cells = [list(column.cells) for column in as_table(REPORT).columns]
    assert list(zip(*cells, strict=True)) == [
        ("gsm8k", "1.23", "62 %", "90 %", "50 %"),
        ("long", "2.00", "", "", ""),
        ("own", "", "100 %", "100 %", "100 %"),
    ]


def test_nothing_is_rounded_on_disk(tmp_path: Path) -> None:
    """It holds what the report holds."""
    write_report(tmp_path / "report.json", REPORT)
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(
        json.dumps(asdict(REPORT))
    )
