"""Which passes are timed when a target starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table
from outrider.actors.target.schedule.warm_up import (
    WARM_UP_TURNS,
    time_passes,
)


class Noting(TabularEngine):
    """Notes how many rows each pass had, and behind how many tokens; a row takes a second, or so many."""

    def __init__(
        self, max_scratch: int, *, row_s: float = 1.0, max_context: int = 256, num_slots: int = 1
    ) -> None:
        settings = EngineSettings(
            model="table", num_slots=num_slots, max_context=max_context, max_scratch=max_scratch
        )
        super().__init__(random_table(24, 2, seed=1, concentration=0.1), settings)
        self.now, self._row_s = 0.0, row_s
        self.records: list[int] = []
        """Sizes whose next pass is recorded, which takes half a minute."""
        self.passes: list[tuple[int, int]] = []

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """As a device does."""
        num_rows = sum(len(rows.tokens) for rows in batch)
        self.passes.append((self.cached(batch[0].slot), num_rows))
        self.now += self._row_s * num_rows
        logits = super().forward(batch)
        if num_rows not in self.records:
            return logits
        self.records.remove(num_rows)
        self.now += 30.0
        return replace(logits, recording_s=30.0)


@pytest.mark.parametrize("context", [0, 5, 16, 40])
def test_rows_are_timed_behind_the_context(context: int) -> None:
    engine = Noting(max_scratch=16)
    curve = time_passes(engine, lambda: engine.now, most_rows=16, context=context, most_s=16.0)
    assert curve == {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0, 16: 16.0}
    timed = engine.passes[-len(curve) :]
    assert timed == [(context, rows) for rows in curve]
    before = engine.passes[: -len(curve)]
    assert sum(rows for _, rows in before) == context
    assert engine.num_free == 1


@pytest.mark.parametrize(("max_context", "largest"), [(4, 15), (5, 31), (8, 255), (9, 257)])
def test_a_short_context_has_room_for_what_is_timed(max_context: int, largest: int) -> None:
    """Trees that are deeper than the context would fail, and with them the start."""
    engine = Noting(max_scratch=320, max_context=max_context)
    assert max(time_passes(engine, lambda: engine.now, most_rows=257, most_s=1e6)) == largest
    assert engine.num_free == 1


@pytest.mark.parametrize(
    ("num_slots", "most_rows", "largest"),
    [(64, 320, [192, 256, 320]), (64, 272, [128, 192, 272]), (3, 900, [32, 64, 96])],
)
def test_the_largest_pass_is_timed(num_slots: int, most_rows: int, largest: list[int]) -> None:
    """Over as many sequences as its rows need, and no larger than the slots allow."""
    engine = Noting(max_scratch=32, num_slots=num_slots)
    curve = time_passes(engine, lambda: engine.now, most_rows=most_rows, most_s=1e6)
    assert list(curve)[-3:] == largest
    assert all(seconds == rows for rows, seconds in curve.items())
    assert engine.num_free == num_slots


def test_turns_end_with_the_time_for_them() -> None:
    """A turn of all sizes takes 31 s here. The largest leaves the others their part of the time."""
    engine = Noting(max_scratch=16)
    time_passes(engine, lambda: engine.now, most_rows=16, most_s=140.0)
    sizes = [rows for _, rows in engine.passes]
    assert sizes[:10] == 2 * [1, 2, 4, 8, 16]
    assert [sizes.count(rows) for rows in (1, 4, 8, 16)] == [8, 8, 5, 3]
    assert sum(sizes) <= 140.0 + 4.0
    engine.passes.clear()
    time_passes(engine, lambda: engine.now, most_rows=16, most_s=1e6)
    assert len(engine.passes) == WARM_UP_TURNS * 5


def test_a_pass_that_is_recorded_says_nothing() -> None:
    """Whenever that is, its size is timed again."""
    engine = Noting(max_scratch=16)
    engine.records = [2, 8, 8, 8]
    assert time_passes(engine, lambda: engine.now, most_rows=16, most_s=300.0) == {
        rows: rows for rows in (1, 2, 4, 8, 16)
    }


def test_large_sizes_are_left_out_where_they_take_too_long() -> None:
    """The first four take 15 s here, the fifth 16 more."""
    engine = Noting(max_scratch=16)
    curve = time_passes(engine, lambda: engine.now, most_rows=16, most_s=10.0)
    assert list(curve) == [1, 2, 4, 8]
    assert engine.num_free == 1
