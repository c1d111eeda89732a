"""The layout of one pass: whose rows lie where in the packed batch, and where sessions that share a call lie in that.

A pass runs the rows of all sessions one after another, as one sequence without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.engine.kv.slot import SlotGrowth
from outrider.actors.engine.protocol import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLayout:
    """One pass."""

    segments: list[SlotGrowth]
    """Rows of each session, in the order of the packed batch."""

    starts: list[int]
    """Where each segment starts in the packed batch, and the number of packed rows at the end."""

    tokens: list[int]
    """Of the packed rows."""

    positions: list[int]
    """Of the packed rows."""

    wanted: list[int]
    """Packed rows that logits are wanted for, ascending."""

    offsets: tuple[int, ...]
    """Where each segment's wanted rows start in `wanted`; one more than there are segments."""

    @property
    def num_rows(self) -> int:
        """Packed rows."""
        return self.starts[-1]

    def written(self, capacity: int) -> list[int]:
        """Row of the storage that each packed row's keys and values go to; a slot has `capacity` rows."""
        rows: list[int] = []
        for each in self.segments:
            first = each.slot * capacity + each.cached + each.scratch
            rows.extend(range(first, first + len(each.parents)))
        return rows

    def queries(self, entries: Sequence[int | None], num_queries: int) -> list[int]:
        """Packed rows of sessions that share a kernel call, padded to equally many.

        Args:
            entries: Segments; None for a slot of nobody.
            num_queries: At least the rows of each segment.

        Returns:
            One entry after another; an entry's padding repeats its first row, and nobody's the first of all.
        """
        queries: list[int] = []
        for index in entries:
            start = end = 0
            if index is not None:
                start, end = self.starts[index], self.starts[index + 1]
                queries.extend(range(start, end))
            queries.extend([start] * (num_queries - (end - start)))
        return queries

    def put_places(
        self, entries: Sequence[int | None], num_queries: int, places: list[int], first: int = 0
    ) -> None:
        """Writes where the packed rows of some segments are among queries that begin at `first`; see `queries`."""
        for entry, index in enumerate(entries):
            if index is not None:
                start, end = self.starts[index], self.starts[index + 1]
                place = first + entry * num_queries
                places[start:end] = range(place, place + end - start)


def plan_pass(batch: Sequence[Rows], segments: list[SlotGrowth]) -> PassLayout:
    """Packs a checked batch."""
    starts, offsets = [0], [0]
    tokens: list[int] = []
    positions: list[int] = []
    wanted: list[int] = []
    for rows, segment in zip(batch, segments, strict=True):
        start, end = starts[-1], starts[-1] + len(segment.parents)
        tokens.extend(segment.tokens)
        positions.extend([segment.cached + depth for depth in segment.depths])
        if rows.logits == "all":
            wanted.extend(range(start, end))
        elif rows.logits == "last":
            wanted.append(end - 1)
        starts.append(end)
        offsets.append(len(wanted))
    return PassLayout(
        segments=segments,
        starts=starts,
        tokens=tokens,
        positions=positions,
        wanted=wanted,
        offsets=tuple(offsets),
    )
