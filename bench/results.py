"""Result rows: JSON lines on disk, medians and spreads."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.machine import describe

FOLDER = Path(__file__).with_name("results")


def write(suite: str, rows: Iterable[dict[str, Any]]) -> Path:
    """Replaces the results of a suite; each row carries the machine and the time."""
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{suite}.jsonl"
    common = {"machine": describe(), "date": time.strftime("%Y-%m-%d")}
    file.write_text("".join(json.dumps({**row, **common}) + "\n" for row in rows), encoding="utf-8")
    return file


def read(suite: str) -> list[dict[str, Any]]:
    """The rows of a suite; empty if it has not been run."""
    file = FOLDER / f"{suite}.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> float:
    """Half the distance between the least and the greatest, relative to the median."""
    return (max(values) - min(values)) / 2.0 / statistics.median(values)
