"""Result rows: JSON lines on disk, and how far runs of the same lie apart."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.figures.machine import describe

FOLDER = Path(__file__).parents[1] / "results"

QUICK = FOLDER / "quick"
"""Where rows of `--quick` go, which say only that a suite works: out of the reports and out of the repository."""


def write(suite: str, rows: Iterable[dict[str, Any]]) -> Path:
    """Replaces the results of a suite; each row carries the machine and the time."""
    return merge(suite, rows, keys=())


def merge(
    suite: str, rows: Iterable[dict[str, Any]], *, keys: Sequence[str], is_quick: bool = False
) -> Path:
    """Replaces the rows of a suite that agree with a new one in all `keys`, where they stand, and keeps the others.

    So a suite can be run in parts. Every row carries its own machine and date. Without keys everything is replaced.
    """
    common = {"machine": describe(), "date": time.strftime("%Y-%m-%d")}
    fresh: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        fresh.setdefault(identity(row, keys), []).append({**row, **common})
    whole: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in read(suite, is_quick=is_quick):
        # Rows without a key are of an older form.
        if keys and all(key in row for key in keys):
            whole.setdefault(identity(row, keys), []).append(row)
    whole |= fresh
    folder = QUICK if is_quick else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{suite}.jsonl"
    part = file.with_suffix(".part")
    part.write_text(
        "".join(json.dumps(row) + "\n" for some in whole.values() for row in some),
        encoding="utf-8",
    )
    part.replace(file)
    return file


def identity(row: dict[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    """What a row is about, comparable."""
    return tuple(json.dumps(row.get(key), sort_keys=True) for key in keys)


def read(suite: str, *, is_quick: bool = False) -> list[dict[str, Any]]:
    """The rows of a suite; empty if it has not been run."""
    file = (QUICK if is_quick else FOLDER) / f"{suite}.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def spread(values: Sequence[float]) -> float:
    """Half the distance between the least and the greatest, relative to the median."""
    return (max(values) - min(values)) / 2.0 / statistics.median(values)
