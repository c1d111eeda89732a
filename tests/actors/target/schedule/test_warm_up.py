"""Which passes are timed when a target starts."""

from __future__ import annotations

from collections.abc import Sequence

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

    def __init__(self, max_scratch: int, *, row_s: float = 1.0, max_context: int = 256) -> None:
        settings = EngineSettings(
            model="table", num_slots=1, max_context=max_context, max_scratch=max_scratch
        )
        super().__init__(random_table(24, 2, seed=1, concentration=0.1), settings)
        self.now, self._row_s = 0.0, row_s
        self.passes: list[tuple[int, int]] = []

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """One sequence."""
        (rows,) = batch
        self.passes.append((self.cached(rows.slot), len(rows.tokens)))
        self.now += self._row_s * len(rows.tokens)
        return super().forward(batch)


@pytest.mark.parametrize("context", [0, 5, 16, 40])
def test_rows_are_timed_behind_the_context(context: int) -> None:
    engine = Noting(max_scratch=16)
    curve = time_passes(engine, lambda: engine.now, context=context, most_s=16.0)
    assert curve == {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0, 16: 16.0}
    timed = engine.passes[-len(curve) :]
    assert timed == [(context, rows) for rows in curve]
    before = engine.passes[: -len(curve)]
    assert sum(rows for _, rows in before) == context
    assert engine.num_free == 1


@pytest.mark.parametrize(("max_context", "largest"), [(4, 8), (5, 16), (8, 128), (9, 256)])
def test_a_short_context_has_room_for_what_is_timed(max_context: int, largest: int) -> None:
    """Trees that are deeper than the context would fail, and with them the start."""
    engine = Noting(max_scratch=320, max_context=max_context)
    assert max(time_passes(engine, lambda: engine.now, most_s=1e6)) == largest
    assert engine.num_free == 1


def test_turns_end_with_the_time_for_them() -> None:
    """A turn of all sizes takes 31 s here."""
    engine = Noting(max_scratch=16)
    time_passes(engine, lambda: engine.now, most_s=70.0)
    assert len(engine.passes) == 3 * 5
    engine.passes.clear()
    time_passes(engine, lambda: engine.now, most_s=1e6)
    assert len(engine.passes) == WARM_UP_TURNS * 5


def test_large_sizes_are_left_out_where_they_take_too_long() -> None:
    """The first four take 15 s here, the fifth 16 more."""
    engine = Noting(max_scratch=16)
    assert list(time_passes(engine, lambda: engine.now, most_s=10.0)) == [1, 2, 4, 8]
    assert engine.num_free == 1
