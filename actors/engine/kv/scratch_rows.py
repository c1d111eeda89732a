"""The scratch rows of all slots as arrays: parents, depths and lineages. Nothing here is refused; see `slots.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.engine.kv.added_rows import WORD, AddedRows, bits_of, descend
from outrider.actors.engine.protocol import Batch, Int64s, Moves

NOT_KEPT = -2
"""Number of a scratch row that does not stay."""


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


class ScratchRows:
    """Trees of scratch rows."""

    def __init__(self, num_slots: int, max_scratch: int) -> None:
        """No slot has any."""
        self.max_scratch = max_scratch
        self.counts_S = np.zeros(num_slots, np.int64)
        """Rows of each slot."""
        # Column 0 is the last cached row, so that parent -1 finds it too.
        columns, words = 1 + max_scratch, -(-max_scratch // WORD)
        self._parents_SC = np.full((num_slots, columns), -1, np.int64)
        self._depths_SC = np.full((num_slots, columns), -1, np.int64)
        self._lineages_SCW = np.zeros((num_slots, columns, words), np.uint64)
        self._own_CW = bits_of(np.arange(max_scratch), words)

    def parents(self, slot: int) -> list[int]:
        """Of the rows of a slot."""
        parents: list[int] = self._parents_SC[slot, 1 : 1 + self.counts_S[slot]].tolist()
        return parents

    def placed(self, batch: Batch, cached_B: Int64s) -> AddedRows | None:
        """Where the rows of a batch would lie.

        Args:
            batch: Of slots that have room for them.
            cached_B: Cached rows of each slot.

        Returns:
            None: a parent is none.
        """
        slots_B, starts = batch.slots_E, batch.starts_E
        scratch_B = self.counts_S.take(slots_B)
        entries_R = np.arange(len(slots_B)).repeat(starts[1:] - starts[:-1])
        shifts_R = (scratch_B - starts[:-1]).take(entries_R)
        columns_R = np.arange(len(entries_R)) + shifts_R
        # Read without their sign, negative numbers are too great.
        above_R = batch.parents_R + 1
        if np.count_nonzero(above_R.view(np.uint64) > columns_R.view(np.uint64)):
            return None
        is_new_R = above_R > scratch_B.take(entries_R)
        places_R = slots_B.take(entries_R) * self._parents_SC.shape[1]
        places_R += np.where(is_new_R, 0, above_R)
        depths_R = self._depths_SC.reshape(-1).take(places_R)
        depths_R += 1
        lineages_RW = self._own_CW.take(columns_R, axis=0)
        lineages_RW |= self._lineages_SCW.reshape(-1, lineages_RW.shape[1]).take(places_R, axis=0)
        if np.count_nonzero(is_new_R):
            depths_R += is_new_R
            descend(np.where(is_new_R, above_R - 1 - shifts_R, -1), depths_R, lineages_RW)
        return AddedRows(
            slots_B=slots_B,
            cached_B=cached_B,
            scratch_B=scratch_B,
            starts=starts,
            entries_R=entries_R,
            tokens_R=batch.tokens_R,
            parents_R=batch.parents_R,
            columns_R=columns_R,
            depths_R=depths_R,
            lineages_RW=lineages_RW,
        )

    def grow(self, added: AddedRows) -> None:
        """Adds rows."""
        places_R = added.slots_B.take(added.entries_R) * self._parents_SC.shape[1]
        places_R += added.columns_R
        places_R += 1
        self._parents_SC.reshape(-1)[places_R] = added.parents_R
        self._depths_SC.reshape(-1)[places_R] = added.depths_R
        words = self._lineages_SCW.shape[2]
        self._lineages_SCW.reshape(-1, words)[places_R] = added.lineages_RW
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
        is_below_K: NDArray[np.bool_] = kept.parents_K >= 0
        depths_K = is_below_K.astype(np.int64)
        lineages_KW = self._own_CW.take(kept.new_K, axis=0)
        descend(np.where(is_below_K, kept.parents_K + kept.firsts_K, -1), depths_K, lineages_KW)
        places = kept.slots_K, kept.new_K + 1
        self._parents_SC[places] = kept.parents_K
        self._depths_SC[places] = depths_K
        self._lineages_SCW[places] = lineages_KW
        self.counts_S += np.bincount(kept.slots_K, minlength=len(self.counts_S))
