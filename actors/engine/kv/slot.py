"""The rows of one slot, in plain numbers: what is cached, and the tree of scratch rows below it.

Rows are numbered 0, 1, ... with the cached ones first. A scratch row knows its parent, its depth below the last cached row (a
child of it has depth 0) and its *lineage*: a bit for each scratch row on the way from the last cached row to itself, itself
included.

Invariants: `parents[i] < i`; `lineages[i]` has bit i set and no higher one; a refused operation changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.actors.engine.protocol import Rows, SlotOverflow


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRoom:
    """How much a slot holds."""

    max_context: int
    """Positions of a sequence."""

    max_scratch: int
    """Scratch rows."""

    vocab_size: int
    """Token ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotGrowth:
    """Checked rows that a slot is about to get."""

    slot: int
    cached: int
    scratch: int
    """Scratch rows that are there already."""

    tokens: Sequence[int]
    parents: list[int]
    depths: list[int]
    lineages: list[int]

    @property
    def total(self) -> int:
        """Rows of the slot with these."""
        return self.cached + self.scratch + len(self.parents)


def check_lengths(rows: Rows) -> None:
    """Refuses an entry without tokens, or with other than one parent for each.

    Raises:
        ValueError: The entry is such a one.
    """
    if not len(rows.tokens) or len(rows.tokens) != len(rows.parents):
        raise ValueError(
            f"slot {rows.slot}: {len(rows.tokens)} tokens with {len(rows.parents)} parents; "
            "give at least one token, and one parent for each"
        )


@dataclass(slots=True, kw_only=True)
class Slot:
    """Rows of one session."""

    number: int
    """Of the slot, for messages and growths."""

    cached: int = 0
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    lineages: list[int] = field(default_factory=list)

    def check(self, rows: Rows, room: SlotRoom) -> SlotGrowth:
        """What an entry of a batch would add, without adding it.

        Raises:
            SlotOverflow: Rows do not fit.
            ValueError: The entry is empty, or a token id or parent is out of range.
        """
        check_lengths(rows)
        tokens, num_rows, scratch = rows.tokens, len(rows.tokens), len(self.parents)
        if min(tokens) < 0 or max(tokens) >= room.vocab_size:
            wrong = next(token for token in tokens if not 0 <= token < room.vocab_size)
            raise ValueError(
                f"slot {self.number}: token id {wrong} is outside the vocabulary of {room.vocab_size}"
            )
        if scratch + num_rows > room.max_scratch:
            raise SlotOverflow(
                f"slot {self.number}: {num_rows} more rows behind {scratch} scratch rows, "
                f"and max_scratch is {room.max_scratch}; rebase first, send fewer, or raise max_scratch"
            )
        parents: list[int] = []
        depths, lineages = list(self.depths), list(self.lineages)
        for row, parent in enumerate(rows.parents, start=scratch):
            parent = int(parent)
            if not -1 <= parent < row:
                raise ValueError(
                    f"slot {self.number}: scratch row {row} has parent {parent}; "
                    f"it must be -1 or an earlier row, at most {row - 1}"
                )
            parents.append(parent)
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
            lineages.append((lineages[parent] if parent >= 0 else 0) | 1 << row)
        new_depths = depths[scratch:]
        if self.cached + max(new_depths) >= room.max_context:
            raise SlotOverflow(
                f"slot {self.number}: a row at position {self.cached + max(new_depths)}, "
                f"and max_context is {room.max_context}; stop the sequence, or cut the tree's depth"
            )
        return SlotGrowth(
            slot=self.number,
            cached=self.cached,
            scratch=scratch,
            tokens=tokens,
            parents=parents,
            depths=new_depths,
            lineages=lineages[scratch:],
        )

    def grow(self, growth: SlotGrowth) -> None:
        """Adds checked rows."""
        self.parents.extend(growth.parents)
        self.depths.extend(growth.depths)
        self.lineages.extend(growth.lineages)

    def rebase(self, path: Sequence[int], keep: Sequence[int]) -> list[int]:
        """Commits a path and keeps rows below it.

        Returns:
            For each row that now follows the formerly last cached one, the scratch row that it was; ascending.

        Raises:
            ValueError: `path` is not a path from the last cached row, or `keep` is not below it, not ascending, or lacks
                the parent of one of its rows. Nothing was changed.
        """
        scratch, end = len(self.parents), -1
        for row in path:
            if not 0 <= row < scratch or self.parents[row] != end:
                raise ValueError(
                    f"slot {self.number}: path {list(path)} breaks at row {row}, which is not a child of "
                    f"{end} among {scratch} scratch rows"
                )
            end = row
        renumbered = {end: -1}
        for new, row in enumerate(keep):
            in_order = new == 0 or row > keep[new - 1]
            if not 0 <= row < scratch or not in_order or self.parents[row] not in renumbered:
                raise ValueError(
                    f"slot {self.number}: row {row} cannot be kept in {list(keep)} after path {list(path)}: "
                    f"rows must be ascending, below {scratch}, and each the child of the path's end "
                    "or of a kept row"
                )
            renumbered[row] = new
        depth = len(path)
        depths = [self.depths[row] - depth for row in keep]
        parents = [renumbered[self.parents[row]] for row in keep]
        lineages: list[int] = []
        for new, parent in enumerate(parents):
            lineages.append((lineages[parent] if parent >= 0 else 0) | 1 << new)
        self.cached += depth
        self.parents, self.depths, self.lineages = parents, depths, lineages
        return [*path, *keep]

    def truncate(self, length: int) -> None:
        """Drops the scratch rows, and the cached rows from `length` on.

        Raises:
            ValueError: `length` is negative or more than there are.
        """
        if not 0 <= length <= self.cached:
            raise ValueError(
                f"cannot truncate slot {self.number} to {length} rows; it has {self.cached} cached rows"
            )
        self.cached = length
        self.parents, self.depths, self.lineages = [], [], []
