"""Shapes that passes are padded to, so that few of them are ever met.

A pass whose shapes repeat can be recorded once and replayed, which is what a CUDA graph needs. Padding costs little where it
matters: reading the weights takes the time of a small pass, whatever its number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from outrider.actors.engine.attention.pass_layout import PassLayout

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of rows, packed or of one session: the steps are finer where trees of 16, 32 and 64 nodes and their root lie."""

LEAST_SHOWN = 256
"""Rows of a slot that are shown to its queries, at least."""

COVERED_LONGEST = 24
"""Rows of a session that a cover takes: a tree of 16 candidates and its root."""

COVERED_SHOWN = 16_384
"""Rows of all its slots that a cover is shown: longer texts, the fewer sessions there are. An 8 B model's take 2 GiB, which a GPU reads in a fraction of a pass."""

MOST_WASTED = 2
"""Times the rows that a pass has, run or read: up to that a recorded shape serves it for good."""

MOST_PADDED = 2048
"""Queries of all sessions, each session padded to the longest, at most: beyond, a ragged batch wastes too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a pass asks of a shape."""

    rows: int
    sessions: int
    longest: int
    """Rows of the session that has most."""

    slots: int
    """Greatest slot number plus one."""

    shown: int
    """Rows of the fullest slot."""

    layers: tuple[int, ...] = ()
    """Whose hidden states are wanted, as `Taps.layers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticShape:
    """Sizes of all tensors of a pass."""

    rows: int
    """Packed rows."""

    entries: int
    """Sessions in attention."""

    longest: int
    """Queries of each."""

    shown: int
    """Rows of a slot that each is shown, from the slot's first."""

    by_slot: bool
    """Entry i is slot i, whose rows are read in place; otherwise entry i is the i-th session, whose rows are gathered."""

    layers: tuple[int, ...] = ()
    """Whose hidden states are kept."""

    def holds(self, need: Need) -> bool:
        """Whether a pass fits."""
        entries = need.slots if self.by_slot else need.sessions
        return (
            need.layers == self.layers
            and need.rows <= self.rows
            and entries <= self.entries
            and need.longest <= self.longest
            and need.shown <= self.shown
        )

    def is_as_good_as(self, other: StaticShape) -> bool:
        """Whether a recording of the other would gain little: reading weights takes the time of a small pass, and what is padded costs a part of the rest.
        Plain decoding has passes of its own size always, for most passes are of that kind."""
        return (
            (self.longest == 1) == (other.longest == 1)
            and self.rows <= MOST_WASTED * other.rows
            and self.work[0] <= MOST_WASTED * other.work[0]
        )

    @property
    def work(self) -> tuple[int, int]:
        """Orders shapes by how long their passes take: gathering reads twice and writes once what is else read once."""
        rows_read = self.entries * self.shown * (1 if self.by_slot else 3)
        return rows_read, self.rows * self.entries * self.longest


def need_of(plan: PassLayout, layers: tuple[int, ...] = ()) -> Need:
    """What a planned pass asks of a shape, and the layers whose hidden states are wanted."""
    starts = plan.starts
    return Need(
        rows=plan.num_rows,
        sessions=plan.num_sessions,
        longest=max(end - start for start, end in pairwise(starts)),
        slots=1 + max(plan.slots),
        shown=max(plan.totals),
        layers=layers,
    )


def shape_of(need: Need, *, num_slots: int, capacity: int) -> StaticShape | None:
    """The least shape that holds a pass.

    Args:
        need: What the pass asks.
        num_slots: Slots of the storage.
        capacity: Rows of a slot.

    Returns:
        None if the pass is not small: then padding it would cost more than launching it does.
    """
    rows, longest = _step(need.rows), _step(need.longest)
    if rows is None or longest is None:
        return None
    sessions, slots = _power(need.sessions, num_slots), _power(need.slots, num_slots)
    by_slot = _is_dense(slots, sessions)
    entries = slots if by_slot else sessions
    if entries * longest > max(rows, MOST_PADDED):
        return None
    shown = _shown(need.shown, capacity)
    return StaticShape(
        rows=rows,
        entries=entries,
        longest=longest,
        shown=shown,
        by_slot=by_slot,
        layers=need.layers,
    )


def cover_of(shape: StaticShape, *, capacity: int) -> StaticShape:
    """The shape that serves passes of as many sessions until theirs are recorded.

    Args:
        shape: Of one of them.
        capacity: Rows of a slot.
    """
    rows, longest = shape.rows, shape.longest
    if 1 < longest < COVERED_LONGEST and shape.entries * COVERED_LONGEST <= MOST_PADDED:
        longest = COVERED_LONGEST
        rows = max(rows, _step(min(shape.entries * longest, ROWS[-1])) or 0)
    shown = max(shape.shown, min(capacity, COVERED_SHOWN // shape.entries))
    return replace(shape, rows=rows, longest=longest, shown=shown)


def exact_shape(need: Need) -> StaticShape:
    """The shape of a pass that is run by itself: its own sizes."""
    by_slot = _is_dense(need.slots, need.sessions)
    return StaticShape(
        rows=need.rows,
        entries=need.slots if by_slot else need.sessions,
        longest=need.longest,
        shown=need.shown,
        by_slot=by_slot,
    )


def _is_dense(slots: int, sessions: int) -> bool:
    """Whether reading slots that no session of the pass is in costs less than gathering."""
    return slots <= 2 * sessions


def _step(count: int) -> int | None:
    return next((step for step in ROWS if step >= count), None)


def _power(count: int, limit: int) -> int:
    return min(1 << (count - 1).bit_length(), limit)


def _shown(count: int, capacity: int) -> int:
    """256, 384, 512, 768, 1024, ...: at most half as much again as is needed."""
    step = max(LEAST_SHOWN, 1 << (count - 1).bit_length())
    if step > LEAST_SHOWN and count <= step * 3 // 4:
        step = step * 3 // 4
    return min(step, capacity)
