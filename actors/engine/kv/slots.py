"""Which rows every slot holds, and which slots are taken: the books of all engines, as arrays over all slots.

The keys and values themselves are elsewhere. Rows are numbered 0, 1, ... with the cached ones first, then the scratch rows (`added_rows.py`). A
free slot may have *kept* rows: cached ones of the session that had it, there until somebody takes the slot. Adding and moving rows takes a fixed
number of array operations, whatever the number of sessions; a refused operation changes nothing, and why is said by `refusals.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from outrider.actors.engine.kv.added_rows import AddedRows, packed
from outrider.actors.engine.kv.pass_refusals import (
    HeldRows,
    SlotRoom,
    check_move,
    check_rows,
)
from outrider.actors.engine.kv.scratch_rows import NOT_KEPT, ScratchRows
from outrider.actors.engine.protocol import Batch, Int64s, Moves, NoFreeSlot, Rows


class SlotTable:
    """The books of all slots."""

    def __init__(
        self,
        *,
        num_slots: int,
        max_context: int,
        max_scratch: int,
        vocab_size: int,
        has_ancestry: bool = True,
    ):
        """Starts with every slot free.

        Args:
            num_slots: Sessions.
            max_context: Positions of a sequence.
            max_scratch: Scratch rows of a slot.
            vocab_size: Token ids.
            has_ancestry: Whether depths and ancestors of rows are kept, which attention needs.

        Raises:
            ValueError: A size is less than one.
        """
        sizes = {"num_slots": num_slots, "max_context": max_context, "max_scratch": max_scratch}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} is {size}; it must be at least 1")
        self.num_slots = num_slots
        self.max_context = max_context
        self.max_scratch = max_scratch
        self.vocab_size = vocab_size
        self.cached_S = np.zeros(num_slots, np.int64)
        """Cached rows; of a free slot those that were kept."""
        self._is_taken_S = np.zeros(num_slots, np.bool_)
        self._scratch = ScratchRows(num_slots, max_scratch, has_ancestry=has_ancestry)

    @property
    def num_free(self) -> int:
        """Number of free slots."""
        return self.num_slots - int(np.count_nonzero(self._is_taken_S))

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """Takes a free slot, the lowest unless one is named, with the first `keep` of its kept rows.

        Raises:
            NoFreeSlot: Every slot is taken.
            ValueError: This slot is not free, or fewer rows were kept.
        """
        if slot is None:
            if self._is_taken_S.all():
                raise NoFreeSlot(
                    f"all {self.num_slots} slots are taken; release one first, or raise num_slots"
                )
            slot = int(self._is_taken_S.argmin())
        elif not 0 <= slot < self.num_slots or self._is_taken_S[slot]:
            raise ValueError(
                f"slot {slot} is not free (slots are 0 to {self.num_slots - 1}); name a free one"
            )
        if not 0 <= keep <= self.cached_S[slot]:
            raise ValueError(
                f"slot {slot} cannot be taken with {keep} rows; {self.cached_S[slot]} were kept"
            )
        self._is_taken_S[slot] = True
        self.cached_S[slot] = keep
        return slot

    def release(self, slot: int, *, keep: int = 0) -> None:
        """Frees a slot. Its first `keep` cached rows stay until it is acquired.

        Raises:
            ValueError: The slot is not taken, or has fewer cached rows.
        """
        cached = self.cached(slot)
        if not 0 <= keep <= cached:
            raise ValueError(
                f"cannot keep {keep} rows of slot {slot}, which has {cached} cached rows"
            )
        self._is_taken_S[slot] = False
        self.cached_S[slot] = keep
        self._scratch.counts_S[slot] = 0

    def cached(self, slot: int) -> int:
        """Cached rows of a slot that is taken.

        Raises:
            ValueError: There is no such slot, or it is free.
        """
        if not 0 <= slot < self.num_slots or not self._is_taken_S[slot]:
            raise ValueError(
                f"slot {slot} is not taken (slots are 0 to {self.num_slots - 1}); acquire it first"
            )
        return int(self.cached_S[slot])

    def scratch(self, slot: int) -> int:
        """Scratch rows of a slot that is taken.

        Raises:
            ValueError: There is no such slot, or it is free.
        """
        self.cached(slot)
        return int(self._scratch.counts_S[slot])

    def parents(self, slot: int) -> list[int]:
        """Of the scratch rows of a slot."""
        self.cached(slot)
        return self._scratch.parents(slot)

    def reusable(self, slot: int) -> int:
        """Number of cached rows of a slot, or of kept ones if it is free.

        Raises:
            ValueError: There is no such slot.
        """
        if not 0 <= slot < self.num_slots:
            raise ValueError(f"there is no slot {slot}; slots are 0 to {self.num_slots - 1}")
        return int(self.cached_S[slot])

    def check(self, batch: Sequence[Rows]) -> AddedRows:
        """What a batch would add, without adding it.

        Raises:
            SlotOverflow: Rows do not fit.
            ValueError: The batch or an entry is empty, a slot is free or occurs twice, or a token id or parent is out of
                range.
        """
        arrays = packed(batch)
        counts_B, slots_B = arrays.starts_E[1:] - arrays.starts_E[:-1], arrays.slots_E
        # Read without their sign, negative numbers are too great.
        if np.count_nonzero(
            arrays.tokens_R.view(np.uint64) >= self.vocab_size
        ) or not self._are_taken(slots_B):
            self._refuse(arrays)
        scratch_B, cached_B = self._scratch.counts_S.take(slots_B), self.cached_S.take(slots_B)
        ends_B = scratch_B + counts_B
        if np.count_nonzero((ends_B > self.max_scratch) | (ends_B <= scratch_B)):
            self._refuse(arrays)
        added = self._scratch.placed(arrays, cached_B, scratch_B)
        if added is None:
            self._refuse(arrays)
        if np.count_nonzero(cached_B + ends_B > self.max_context):
            # Wide trees fit where deep ones do not, as their positions are what counts.
            self._check(arrays)
        return added

    def grow(self, added: AddedRows) -> None:
        """Adds checked rows."""
        self._scratch.grow(added)

    def rebase(self, moves: Moves) -> None:
        """Commits paths and keeps rows below them; see `Engine.rebase`. What has to move for it, `moved_rows` tells.

        Raises:
            ValueError: As there, or a slot is not taken.
        """
        slots_E, scratch = moves.slots_E, self._scratch
        if not len(slots_E):
            return
        if not self._are_taken(slots_E) or not scratch.are_paths(moves):
            self._refuse_moves(moves)
        counts_E = (moves.paths_EP >= 0).sum(axis=1)
        kept = None
        if moves.keeps_EK.shape[1]:
            kept = scratch.kept(moves, counts_E)
            if kept is None or kept.falls or np.count_nonzero(kept.parents_K == NOT_KEPT):
                self._refuse_moves(moves)
        self.cached_S[slots_E] += counts_E
        scratch.counts_S[slots_E] = 0
        if kept is not None:
            scratch.keep(kept)

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """Gives an empty slot the first cached rows of another, or kept ones if that is free.

        Raises:
            ValueError: The source has fewer rows, or the destination is not empty.
        """
        held, scratch = self.cached(destination), self.scratch(destination)
        cached = self.reusable(source)
        if not 0 <= length <= cached:
            raise ValueError(
                f"cannot copy {length} rows of slot {source}, which has {cached} cached rows"
            )
        if held or scratch:
            raise ValueError(
                f"slot {destination} has {held} cached and {scratch} scratch rows; "
                "copy to an empty slot"
            )
        self.cached_S[destination] = length

    def truncate(self, slot: int, length: int) -> None:
        """Drops the scratch rows, and the cached rows from `length` on.

        Raises:
            ValueError: `length` is negative or more than there are, or the slot is not taken.
        """
        cached = self.cached(slot)
        if not 0 <= length <= cached:
            raise ValueError(
                f"cannot truncate slot {slot} to {length} rows; it has {cached} cached rows"
            )
        self.cached_S[slot] = length
        self._scratch.counts_S[slot] = 0

    def _are_taken(self, slots_B: Int64s) -> bool:
        """Whether slots are taken and none is named twice."""
        slots = slots_B.tolist()
        if len(set(slots)) < len(slots) or min(slots) < 0 or max(slots) >= self.num_slots:
            return False
        return bool(np.count_nonzero(self._is_taken_S.take(slots_B)) == len(slots))

    def _held(self, slot: int) -> HeldRows:
        return HeldRows(number=slot, cached=self.cached(slot), parents=self.parents(slot))

    def _check(self, batch: Batch) -> None:
        """By the plain rules, entry by entry."""
        if len(set(batch.slots_E.tolist())) < len(batch):
            raise ValueError(
                f"a slot occurs twice in the batch: {batch.slots_E.tolist()}; "
                "put all rows of a slot into one entry"
            )
        room = SlotRoom(
            max_context=self.max_context, max_scratch=self.max_scratch, vocab_size=self.vocab_size
        )
        for rows in batch:
            check_rows(self._held(rows.slot), rows, room)

    def _refuse(self, batch: Batch) -> NoReturn:
        self._check(batch)
        raise AssertionError("the plain rules refuse what is refused here")

    def _refuse_moves(self, moves: Moves) -> NoReturn:
        for slot, path, keep in moves:
            check_move(self._held(slot), path, keep)
        raise ValueError(f"a slot occurs twice in the moves: {moves.slots_E.tolist()}")
