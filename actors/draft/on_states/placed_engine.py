"""Engines of rows without keys and values of a model, each with its position in the text: what they keep of slots and of new rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.actors.engine.protocol import WANTS, Batch, Int64s, ModelSpec, Moves
from outrider.actors.engine.tables.moved_columns import move_columns
from outrider.actors.engine.tables.token_slot_engine import TokenSlotEngine

_ALL = WANTS.index("all")


class PlacedEngine(TokenSlotEngine):
    """Positions of the rows of many slots. Column 0 is the last cached row, so that parent -1 finds it too; scratch rows follow."""

    def __init__(self, spec: ModelSpec, *, num_slots: int, max_scratch: int) -> None:
        """Arguments and errors as of `TokenSlotEngine`."""
        super().__init__(spec, num_slots=num_slots, max_scratch=max_scratch)
        self._positions_SC = np.full((num_slots, 1 + max_scratch), -1, np.int64)

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """See `Engine`."""
        slot = self._slots.acquire(slot, keep=keep)
        self._positions_SC[slot, 0] = keep - 1
        return slot

    def release(self, slot: int, *, keep: int = 0) -> None:
        """See `Engine`."""
        self._slots.release(slot, keep=keep)

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """See `Engine`; what the target told is not copied."""
        self._slots.copy_prefix(source, destination, length)
        self._positions_SC[destination, 0] = length - 1

    def truncate(self, slot: int, length: int) -> None:
        """See `Engine`."""
        self._slots.truncate(slot, length)
        self._positions_SC[slot, 0] = length - 1

    def rebase(self, moves: Moves) -> None:
        """See `Engine`."""
        self._slots.rebase(moves)
        move_columns(self._positions_SC, moves)

    def _place(self, arrays: Batch) -> tuple[Int64s, Int64s, NDArray[np.bool_], Int64s]:
        """Adds the rows of a batch.

        Returns:
            Of each row: its slot, its column, whether its parent is of this batch, too, and its position.
        """
        positions_SC, counts_B = self._positions_SC, np.diff(arrays.starts_E)
        firsts_B = np.array([self._slots.scratch(slot) for slot in arrays.slots_E.tolist()])
        slots_R = self._slots.add(arrays)
        columns_R = np.arange(arrays.num_rows)
        columns_R += np.repeat(firsts_B + 1 - arrays.starts_E[:-1], counts_B)
        above_R = arrays.parents_R + 1
        is_below_new_R = above_R > np.repeat(firsts_B, counts_B)
        positions_R: Int64s = positions_SC[slots_R, above_R] + 1
        positions_SC[slots_R, columns_R] = positions_R
        # Those below other new rows, one after another: rows of texts that are read.
        for row in is_below_new_R.nonzero()[0].tolist():
            position = positions_SC[slots_R[row], above_R[row]] + 1
            positions_R[row] = positions_SC[slots_R[row], columns_R[row]] = position
        return slots_R, columns_R, is_below_new_R, positions_R


def wanted_rows(arrays: Batch) -> Int64s:
    """The rows of a batch that have logits, ascending."""
    wanted_R = np.repeat(arrays.wanted_E == _ALL, np.diff(arrays.starts_E))
    wanted_R[arrays.starts_E[1:][arrays.wanted_E >= 1] - 1] = True
    return wanted_R.nonzero()[0]
