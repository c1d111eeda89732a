"""Shapes that passes are padded to, so that few of them are ever met.

A pass whose shapes repeat can be recorded once and replayed, which is what a CUDA graph needs. Padding costs little where it
matters: reading the weights takes the time of a small pass, whatever its number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from outrider.actors.engine.attention.pass_layout import PassLayout

ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of rows, packed or of one session: the steps are finer where trees of 16, 32 and 64 nodes and their root lie. Of larger ones the
logits would take much memory."""

LEAST_SHOWN = 256
"""Rows of a slot that are shown to its queries, at least."""

COVERED_LONGEST = (8, 48)
"""Rows of a session that a cover takes: trees of 7 candidates and their root, and of as many as a request may have by default, 32."""

COVERED_SHOWN = 16_384
"""Rows of all its slots that a cover is shown: longer texts, the fewer sessions there are. An 8 B model's take 2 GiB, which a GPU reads in a fraction of a pass."""

ROWS_AS_WEIGHTS = 512
"""Packed rows that add to a pass what reading the weights takes: 48 rows add .08 of a pass of a 7 B model on an H200."""

QUERIES_AS_ROW = 16
"""Queries of a session that add to attention what reading a row of its slot takes: on a Hopper GPU some 75 multiplications take as long as reading two
bytes, of which heads that share their keys, four as a rule, do one each."""

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

    def cost(self, row_share: float) -> float:
        """About how long passes take, in the time of reading the weights.

        Args:
            row_share: Bytes of a row of a slot, keys and values of all layers, over those of the weights.
        """
        # Gathering reads twice and writes once what is else read once.
        rows_read = self.entries * self.shown * (1 if self.by_slot else 3)
        return (
            1.0
            + row_share * rows_read * (1.0 + self.longest / QUERIES_AS_ROW)
            + self.rows / ROWS_AS_WEIGHTS
        )


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


def usual_shapes(*, num_slots: int, capacity: int) -> list[StaticShape]:
    """Shapes that hold most passes, whatever the length of their texts: of one session, trees of all sizes; of every power of two of sessions, in the first
    slots, one row of each, and small and large trees.

    Args:
        num_slots: Slots of the storage.
        capacity: Rows of a slot.
    """
    found: list[StaticShape] = []
    for power in range(1 + (num_slots - 1).bit_length()):
        sessions = min(1 << power, num_slots)
        for longest in ROWS if sessions == 1 else (1, 2, 1 + COVERED_LONGEST[0]):
            rows = sessions + longest - 1
            need = Need(rows=rows, sessions=sessions, longest=longest, slots=sessions, shown=1)
            shape = shape_of(need, num_slots=num_slots, capacity=capacity)
            if shape is not None:
                wide = shape if sessions == 1 else cover_of(shape, capacity=capacity)
                found.append(replace(wide, shown=_covered(shape, capacity)))
    return list(dict.fromkeys(found))


def cover_of(shape: StaticShape, *, capacity: int) -> StaticShape:
    """The shape that serves passes of as many sessions until theirs are recorded.

    Args:
        shape: Of one of them.
        capacity: Rows of a slot.
    """
    rows, longest = shape.rows, shape.longest
    if longest > 1:
        wanted = next((step for step in COVERED_LONGEST if step >= longest), longest)
        fits = max(step for step in ROWS if step == 1 or shape.entries * step <= MOST_PADDED)
        longest = max(longest, min(wanted, fits))
        rows = max(rows, _step(min(shape.entries * longest, ROWS[-1])) or 0)
    return replace(shape, rows=rows, longest=longest, shown=_covered(shape, capacity))


def _covered(shape: StaticShape, capacity: int) -> int:
    return max(shape.shown, min(capacity, COVERED_SHOWN // shape.entries))


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
