"""Which rows every slot holds, and which slots are taken.

Both engines keep their books here; the keys and values themselves are elsewhere. What a slot holds is its own affair
(`slot.py`). A free slot may have *kept* rows: cached ones of the session that had it, there until somebody takes the slot.
A refused operation changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.engine.kv.slot import Slot, SlotGrowth, SlotRoom
from outrider.actors.engine.protocol import NoFreeSlot, Rows


class SlotTable:
    """The books of all slots."""

    def __init__(
        self,
        *,
        num_slots: int,
        max_context: int,
        max_scratch: int,
        vocab_size: int,
    ):
        """Starts with every slot free.

        Args:
            num_slots: Sessions.
            max_context: Positions of a sequence.
            max_scratch: Scratch rows of a slot.
            vocab_size: Token ids.

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
        self._room = SlotRoom(
            max_context=max_context,
            max_scratch=max_scratch,
            vocab_size=vocab_size,
        )
        self._slots: list[Slot | None] = [None] * num_slots
        self._kept = [0] * num_slots

    @property
    def num_free(self) -> int:
        """Number of free slots."""
        return self._slots.count(None)

    def acquire(self, slot: int | None = None, *, keep: int = 0) -> int:
        """Takes a free slot, the lowest unless one is named, with the first `keep` of its kept rows.

        Raises:
            NoFreeSlot: Every slot is taken.
            ValueError: This slot is not free, or fewer rows were kept.
        """
        if slot is None:
            if None not in self._slots:
                raise NoFreeSlot(
                    f"all {self.num_slots} slots are taken; release one first, or raise num_slots"
                )
            slot = self._slots.index(None)
        elif not 0 <= slot < self.num_slots or self._slots[slot] is not None:
            raise ValueError(
                f"slot {slot} is not free (slots are 0 to {self.num_slots - 1}); name a free one"
            )
        if not 0 <= keep <= self._kept[slot]:
            raise ValueError(
                f"slot {slot} cannot be taken with {keep} rows; {self._kept[slot]} were kept"
            )
        self._slots[slot] = Slot(number=slot, cached=keep)
        self._kept[slot] = 0
        return slot

    def release(self, slot: int, *, keep: int = 0) -> None:
        """Frees a slot. Its first `keep` cached rows stay until it is acquired.

        Raises:
            ValueError: The slot is not taken, or has fewer cached rows.
        """
        held = self.taken(slot)
        if not 0 <= keep <= held.cached:
            raise ValueError(
                f"cannot keep {keep} rows of slot {slot}, which has {held.cached} cached rows"
            )
        self._slots[slot] = None
        self._kept[slot] = keep

    def taken(self, slot: int) -> Slot:
        """The rows of a slot that is taken.

        Raises:
            ValueError: There is no such slot, or it is free.
        """
        held = self._slots[slot] if 0 <= slot < self.num_slots else None
        if held is None:
            raise ValueError(
                f"slot {slot} is not taken (slots are 0 to {self.num_slots - 1}); acquire it first"
            )
        return held

    def reusable(self, slot: int) -> int:
        """Number of cached rows of a slot, or of kept ones if it is free.

        Raises:
            ValueError: There is no such slot.
        """
        if not 0 <= slot < self.num_slots:
            raise ValueError(f"there is no slot {slot}; slots are 0 to {self.num_slots - 1}")
        held = self._slots[slot]
        return self._kept[slot] if held is None else held.cached

    def check(self, batch: Sequence[Rows]) -> list[SlotGrowth]:
        """What a batch would add, without adding it.

        Raises:
            SlotOverflow: Rows do not fit.
            ValueError: The batch or an entry is empty, a slot is free or occurs twice, or a token id or parent is out of
                range.
        """
        if not batch:
            raise ValueError("the batch is empty; give at least one entry")
        if len({rows.slot for rows in batch}) < len(batch):
            raise ValueError(
                f"a slot occurs twice in the batch: {[rows.slot for rows in batch]}; "
                "put all rows of a slot into one entry"
            )
        return [self.taken(rows.slot).check(rows, self._room) for rows in batch]

    def grow(self, growth: SlotGrowth) -> None:
        """Adds checked rows."""
        self.taken(growth.slot).grow(growth)

    def rebase(self, slot: int, path: Sequence[int], keep: Sequence[int]) -> list[int]:
        """Commits a path and keeps rows below it; see `Slot.rebase`.

        Raises:
            ValueError: As there, or the slot is not taken.
        """
        return self.taken(slot).rebase(path, keep)

    def copy_prefix(self, source: int, destination: int, length: int) -> None:
        """Gives an empty slot the first cached rows of another, or kept ones if that is free.

        Raises:
            ValueError: The source has fewer rows, or the destination is not empty.
        """
        empty, cached = self.taken(destination), self.reusable(source)
        if not 0 <= length <= cached:
            raise ValueError(
                f"cannot copy {length} rows of slot {source}, which has {cached} cached rows"
            )
        if empty.cached or empty.parents:
            raise ValueError(
                f"slot {destination} has {empty.cached} cached and {len(empty.parents)} scratch rows; "
                "copy to an empty slot"
            )
        empty.cached = length

    def truncate(self, slot: int, length: int) -> None:
        """Drops the scratch rows, and the cached rows from `length` on.

        Raises:
            ValueError: `length` is negative or more than there are, or the slot is not taken.
        """
        self.taken(slot).truncate(length)
