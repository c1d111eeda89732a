"""Result files: parts are replaced one by one, and quick rows stay apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.figures import machine
from bench.report import rows as results


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    monkeypatch.setattr(results, "QUICK", tmp_path / "quick")
    monkeypatch.setattr(machine, "WORK_MIB", 1)


def _rows(suite: str) -> list[tuple[object, ...]]:
    return [(row["part"], row["value"]) for row in results.read(suite)]


def test_a_part_replaces_its_own_rows_only() -> None:
    """Running one part again leaves the others, and the order of all."""
    keys = ("part",)
    results.merge("s", [{"part": "a", "value": 1}, {"part": "b", "value": 2}], keys=keys)
    results.merge("s", [{"part": "a", "value": 3}], keys=keys)
    assert _rows("s") == [("a", 3), ("b", 2)]
    results.merge("s", [{"part": "c", "value": 4}, {"part": "b", "value": 5}], keys=keys)
    assert _rows("s") == [("a", 3), ("b", 5), ("c", 4)]


def test_rows_of_an_older_form_go() -> None:
    """Rows that lack a key could never be replaced."""
    results.write("s", [{"value": 0}])
    results.merge("s", [{"part": "a", "value": 1}], keys=("part",))
    assert _rows("s") == [("a", 1)]


def test_quick_rows_stay_apart() -> None:
    """They must not get into a report."""
    results.merge("s", [{"part": "a", "value": 1}], keys=("part",), is_quick=True)
    assert results.read("s") == []
    assert len(results.read("s", is_quick=True)) == 1


def test_every_row_names_the_machine() -> None:
    """A figure without one says nothing."""
    results.write("s", [{"value": 0}])
    (row,) = results.read("s")
    assert row["machine"]["cores"] >= 1
    assert row["machine"]["two_at_once"] > 0.0
    assert row["date"]
