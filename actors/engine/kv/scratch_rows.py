"""The scratch rows of all slots as arrays, and what attention asks of their trees: how deep each lies, and who its ancestors are. Nothing here is refused;
see `slots.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.actors.engine.kv.added_rows import WORD, AddedRows, Words, bits_of, descend
from outrider.actors.engine.protocol import Batch, Int64s, Moves

NOT_KEPT = -2
"""Number of a scratch row that does not stay."""

_NONE = np.zeros(0, np.int64)
_NO_WORDS = np.zeros((0, 0), np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptRows:
    """Scratch rows that stay, a slot's behind another's. Shape (K,) each."""

    slots_K: Int64s
    new_K: Int64s
    """Number of each among those of its slot."""
    parents_K: Int64s
    """Likewise; `NOT_KEPT` if it does not stay."""
    firsts_K: Int64s
    """Where those of its slot begin."""
    falls: bool
    """Whether those of a slot do not ascend."""


class Ancestry:
    """Depths and lineages (`added_rows.py`) of scratch rows. Rows are named by slot and number."""

    def __init__(self, num_slots: int, max_scratch: int) -> None:
        """No slot has any row."""
        # Column 0 is the last cached row, so that parent -1 finds it too.
        self._columns, self._words = 1 + max_scratch, -(-max_scratch // WORD)
        self._depths_N = np.full(num_slots * self._columns, -1, np.int64)
        self._lineages_NW = np.zeros((num_slots * self._columns, self._words), np.uint64)
        self._own_CW = bits_of(np.arange(max_scratch), self._words)

    def below(
        self,
        slots_R: Int64s,
        columns_R: Int64s,
        parents_R: Int64s,
        above_R: Int64s | None = None,
    ) -> tuple[Int64s, Words]:
        """Depths and lineages of new rows.

        Args:
            slots_R: Their slots.
            columns_R: Their numbers.
            parents_R: Numbers of their parents, -1 for the last cached row. Of parents that are new rows, too, it does not matter.
            above_R: Index of the parent among the new rows, -1: it is none of them. None: no parent is one of them.
        """
        places_R = slots_R * self._columns
        is_new_R = None if above_R is None else above_R >= 0
        places_R += parents_R + 1 if is_new_R is None else np.where(is_new_R, 0, parents_R + 1)
        depths_R = self._depths_N.take(places_R)
        depths_R += 1
        lineages_RW = self._own_CW.take(columns_R, axis=0)
        lineages_RW |= self._lineages_NW.take(places_R, axis=0)
        if above_R is not None:
            depths_R += above_R >= 0
            descend(above_R, depths_R, lineages_RW)
        return depths_R, lineages_RW

    def put(self, slots_R: Int64s, columns_R: Int64s, depths_R: Int64s, lineages_RW: Words) -> None:
        """Notes rows."""
        places_R = slots_R * self._columns
        places_R += columns_R
        places_R += 1
        self._depths_N[places_R] = depths_R
        self._lineages_NW[places_R] = lineages_RW


class ScratchRows:
    """Trees of scratch rows."""

    def __init__(self, num_slots: int, max_scratch: int, *, has_ancestry: bool) -> None:
        """No slot has any."""
        self.max_scratch = max_scratch
        self.counts_S = np.zeros(num_slots, np.int64)
        """Rows of each slot."""
        # Column 0 is the last cached row, so that parent -1 finds it too.
        self._parents_SC = np.full((num_slots, 1 + max_scratch), -1, np.int64)
        self._ancestry = Ancestry(num_slots, max_scratch) if has_ancestry else None

    def parents(self, slot: int) -> list[int]:
        """Of the rows of a slot."""
        parents: list[int] = self._parents_SC[slot, 1 : 1 + self.counts_S[slot]].tolist()
        return parents

    def placed(self, batch: Batch, cached_B: Int64s, scratch_B: Int64s) -> AddedRows | None:
        """Where the rows of a batch would lie.

        Args:
            batch: Of slots that have room for them.
            cached_B: Cached rows of each slot.
            scratch_B: Its scratch rows.

        Returns:
            None: a parent is none.
        """
        slots_B, starts, parents_R = batch.slots_E, batch.starts_E, batch.parents_R
        entries_R = np.arange(len(slots_B)).repeat(starts[1:] - starts[:-1])
        shifts_R = (scratch_B - starts[:-1]).take(entries_R)
        columns_R = np.arange(len(entries_R)) + shifts_R
        # Read without their sign, negative numbers are too great.
        if np.count_nonzero((parents_R + 1).view(np.uint64) > columns_R.view(np.uint64)):
            return None
        slots_R = slots_B.take(entries_R)
        depths_R, lineages_RW = _NONE, _NO_WORDS
        if self._ancestry is not None:
            above_R = None
            is_new_R = parents_R >= scratch_B.take(entries_R)
            if np.count_nonzero(is_new_R):
                above_R = np.where(is_new_R, parents_R - shifts_R, -1)
            depths_R, lineages_RW = self._ancestry.below(slots_R, columns_R, parents_R, above_R)
        return AddedRows(
            slots_B=slots_B,
            cached_B=cached_B,
            scratch_B=scratch_B,
            starts=starts,
            entries_R=entries_R,
            tokens_R=batch.tokens_R,
            parents_R=parents_R,
            columns_R=columns_R,
            slots_R=slots_R,
            depths_R=depths_R,
            lineages_RW=lineages_RW,
        )

    def grow(self, added: AddedRows) -> None:
        """Adds rows."""
        self._parents_SC[added.slots_R, added.columns_R + 1] = added.parents_R
        if self._ancestry is not None:
            self._ancestry.put(added.slots_R, added.columns_R, added.depths_R, added.lineages_RW)
        self.counts_S[added.slots_B] += added.counts_B

    def are_paths(self, moves: Moves) -> bool:
        """Whether each path leads down from the last cached row."""
        paths_EP, rows_E1 = moves.paths_EP, moves.slots_E[:, None]
        before_EP = np.full(paths_EP.shape, -1, np.int64)
        before_EP[:, 1:] = paths_EP[:, :-1]
        is_wrong_EP = paths_EP >= self.counts_S[rows_E1]
        places_EP = np.minimum(paths_EP, self.max_scratch - 1) + 1
        is_wrong_EP |= self._parents_SC[rows_E1, places_EP] != before_EP
        return not np.count_nonzero(is_wrong_EP & (paths_EP >= 0))

    def kept(self, moves: Moves, counts_E: Int64s) -> KeptRows | None:
        """The rows that are to stay below paths of so many rows; None: there is no such row in a slot."""
        slots_E, keeps_EK = moves.slots_E, moves.keeps_EK
        entries_K, new_K = (keeps_EK >= 0).nonzero()
        old_K, slots_K = keeps_EK[entries_K, new_K], slots_E[entries_K]
        if np.count_nonzero(old_K >= self.counts_S[slots_K]):
            return None
        ends_E = np.full(len(slots_E), -1, np.int64)
        moving = counts_E.nonzero()[0]
        ends_E[moving] = moves.paths_EP[moving, counts_E[moving] - 1]
        numbers_EC = np.full((len(slots_E), 1 + self.max_scratch), NOT_KEPT, np.int64)
        numbers_EC[np.arange(len(slots_E)), ends_E + 1] = -1
        numbers_EC[entries_K, old_K + 1] = new_K
        falls_K = (old_K[1:] <= old_K[:-1]) & (entries_K[1:] == entries_K[:-1])
        counts_K = np.bincount(entries_K, minlength=len(slots_E))
        return KeptRows(
            slots_K=slots_K,
            new_K=new_K,
            parents_K=numbers_EC[entries_K, self._parents_SC[slots_K, old_K + 1] + 1],
            firsts_K=(counts_K.cumsum() - counts_K)[entries_K],
            falls=bool(np.count_nonzero(falls_K)),
        )

    def keep(self, kept: KeptRows) -> None:
        """Puts rows that stay where they are to be, in slots without rows."""
        slots_K, new_K, parents_K = kept.slots_K, kept.new_K, kept.parents_K
        self._parents_SC[slots_K, new_K + 1] = parents_K
        if self._ancestry is not None:
            above_K = np.where(parents_K < 0, -1, parents_K + kept.firsts_K)
            self._ancestry.put(
                slots_K, new_K, *self._ancestry.below(slots_K, new_K, parents_K, above_K)
            )
        self.counts_S += np.bincount(slots_K, minlength=len(self.counts_S))
