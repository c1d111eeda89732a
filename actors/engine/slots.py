"""Which rows every slot holds, in plain numbers.

Both engines keep their books here; the keys and values themselves are elsewhere. Rows of a slot are numbered 0, 1, ... with
the cached ones first. A scratch row knows its parent, its depth below the last cached row (a child of it has depth 0) and its
*lineage*: a bit for each scratch row on the way from the last cached row to itself, itself included.

A free slot may have *kept* rows: cached ones of the session that had it, there until somebody takes the slot.

Invariants: `parents[i] < i`; `lineages[i]` has bit i set and no higher one; a refused operation changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from outrider.actors.engine.growing_mask import GrowingMask, fits
from outrider.actors.engine.protocol import NoFreeSlot, Rows, SlotOverflow


@dataclass(slots=True)
class Slot:
    """Rows of one session."""

    cached: int = 0
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    lineages: list[int] = field(default_factory=list)
    mask: GrowingMask | None = None
    """The mask of the scratch rows, once one of their passes could take a slice of it. The place's own: the next session has it, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Checked rows that a slot is about to get."""

    slot: int
    cached: int
    scratch: int
    """Scratch rows that are there already."""

    tokens: Sequence[int]
    parents: list[int]
    depths: list[int]
    lineages: list[int]
    mask: npt.NDArray[np.float32] | None = None
    """What each row sees of all rows, as a slice of the slot's mask; None: to be built. Read before the next pass."""

    @property
    def total(self) -> int:
        """Rows of the slot with these."""
        return self.cached + self.scratch + len(self.parents)


class SlotTable:
    """The books of all slots."""

    def __init__(
        self,
        *,
        num_slots: int,
        max_context: int,
        max_scratch: int,
        vocab_size: int,
        keeps_masks: bool = True,
    ):
        """Starts with every slot free.

        Args:
            num_slots: Sessions.
            max_context: Positions of a sequence.
            max_scratch: Scratch rows of a slot.
            vocab_size: Token ids.
            keeps_masks: False: growths come without masks.

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
        self._keeps_masks = keeps_masks and fits(
            num_slots=num_slots, max_context=max_context, max_scratch=max_scratch
        )
        self._slots: list[Slot | None] = [None] * num_slots
        self._kept = [0] * num_slots
        self._masks: list[GrowingMask | None] = [None] * num_slots

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
        self._slots[slot] = Slot(cached=keep, mask=self._masks[slot])
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
        self._masks[slot] = held.mask
        if held.mask is not None:
            held.mask.keep(())

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

    def check(self, batch: Sequence[Rows]) -> list[Growth]:
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
        return [self._check(rows) for rows in batch]

    def _check(self, rows: Rows) -> Growth:
        held = self.taken(rows.slot)
        tokens, num_rows, scratch = rows.tokens, len(rows.tokens), len(held.parents)
        if num_rows == 0 or num_rows != len(rows.parents):
            raise ValueError(
                f"slot {rows.slot}: {num_rows} tokens with {len(rows.parents)} parents; "
                "give at least one token, and one parent for each"
            )
        if min(tokens) < 0 or max(tokens) >= self.vocab_size:
            wrong = next(token for token in tokens if not 0 <= token < self.vocab_size)
            raise ValueError(
                f"slot {rows.slot}: token id {wrong} is outside the vocabulary of {self.vocab_size}"
            )
        if scratch + num_rows > self.max_scratch:
            raise SlotOverflow(
                f"slot {rows.slot}: {num_rows} more rows behind {scratch} scratch rows, "
                f"and max_scratch is {self.max_scratch}; rebase first, send fewer, or raise max_scratch"
            )
        parents: list[int] = []
        depths, lineages = list(held.depths), list(held.lineages)
        for row, parent in enumerate(rows.parents, start=scratch):
            parent = int(parent)
            if not -1 <= parent < row:
                raise ValueError(
                    f"slot {rows.slot}: scratch row {row} has parent {parent}; "
                    f"it must be -1 or an earlier row, at most {row - 1}"
                )
            parents.append(parent)
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
            lineages.append((lineages[parent] if parent >= 0 else 0) | 1 << row)
        new_depths = depths[scratch:]
        if held.cached + max(new_depths) >= self.max_context:
            raise SlotOverflow(
                f"slot {rows.slot}: a row at position {held.cached + max(new_depths)}, "
                f"and max_context is {self.max_context}; stop the sequence, or cut the tree's depth"
            )
        return Growth(
            slot=rows.slot,
            cached=held.cached,
            scratch=scratch,
            tokens=tokens,
            parents=parents,
            depths=new_depths,
            lineages=lineages[scratch:],
            mask=self._mask(held, parents) if rows.mask == "sliced" else None,
        )

    def _mask(self, held: Slot, parents: list[int]) -> npt.NDArray[np.float32] | None:
        """The mask of rows that grow from rows that were run before; None where it must be built, or none is needed."""
        scratch = len(held.parents)
        if not self._keeps_masks or max(parents) >= scratch or scratch + len(parents) == 1:
            return None
        if held.mask is None:
            held.mask = GrowingMask(max_context=self.max_context, max_scratch=self.max_scratch)
        return held.mask.slice(cached=held.cached, parents=parents, lineages=held.lineages)

    def grow(self, growth: Growth) -> None:
        """Adds checked rows."""
        held = self.taken(growth.slot)
        if growth.mask is None and held.mask is not None:
            # What a pass that failed, or was not asked for a slice, has left there.
            held.mask.forget_from(growth.scratch)
        held.parents.extend(growth.parents)
        held.depths.extend(growth.depths)
        held.lineages.extend(growth.lineages)

    def rebase(self, slot: int, path: Sequence[int], keep: Sequence[int]) -> list[int]:
        """Commits a path and keeps rows below it.

        Returns:
            For each row that now follows the formerly last cached one, the scratch row that it was; ascending.

        Raises:
            ValueError: `path` is not a path from the last cached row, or `keep` is not below it, not ascending, or lacks
                the parent of one of its rows. Nothing was changed.
        """
        held = self.taken(slot)
        scratch, end = len(held.parents), -1
        for row in path:
            if not 0 <= row < scratch or held.parents[row] != end:
                raise ValueError(
                    f"slot {slot}: path {list(path)} breaks at row {row}, which is not a child of "
                    f"{end} among {scratch} scratch rows"
                )
            end = row
        renumbered = {end: -1}
        for new, row in enumerate(keep):
            in_order = new == 0 or row > keep[new - 1]
            if not 0 <= row < scratch or not in_order or held.parents[row] not in renumbered:
                raise ValueError(
                    f"slot {slot}: row {row} cannot be kept in {list(keep)} after path {list(path)}: "
                    f"rows must be ascending, below {scratch}, and each the child of the path's end "
                    "or of a kept row"
                )
            renumbered[row] = new
        depth = len(path)
        depths = [held.depths[row] - depth for row in keep]
        parents = [renumbered[held.parents[row]] for row in keep]
        lineages: list[int] = []
        for new, parent in enumerate(parents):
            lineages.append((lineages[parent] if parent >= 0 else 0) | 1 << new)
        held.cached += depth
        held.parents, held.depths, held.lineages = parents, depths, lineages
        if held.mask is not None:
            held.mask.keep(keep)
        return [*path, *keep]

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
            ValueError: `length` is negative or more than there are.
        """
        held = self.taken(slot)
        if not 0 <= length <= held.cached:
            raise ValueError(
                f"cannot truncate slot {slot} to {length} rows; it has {held.cached} cached rows"
            )
        held.cached = length
        held.parents, held.depths, held.lineages = [], [], []
        if held.mask is not None:
            held.mask.keep(())
