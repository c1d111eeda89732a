"""What is wrong with rows or moves that a slot cannot take: the plain rules, entry by entry. Called only when something is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
class HeldRows:
    """The rows of one slot."""

    number: int
    """Of the slot."""

    cached: int
    parents: list[int]
    """Of its scratch rows."""


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


def check_rows(held: HeldRows, rows: Rows, room: SlotRoom) -> None:
    """Refuses rows that a slot cannot take.

    Raises:
        SlotOverflow: They do not fit.
        ValueError: The entry is empty, or a token id or parent is out of range.
    """
    check_lengths(rows)
    scratch = len(held.parents)
    for token in rows.tokens:
        if not 0 <= token < room.vocab_size:
            raise ValueError(
                f"slot {held.number}: token id {token} is outside the vocabulary of {room.vocab_size}"
            )
    if scratch + len(rows.tokens) > room.max_scratch:
        raise SlotOverflow(
            f"slot {held.number}: {len(rows.tokens)} more rows behind {scratch} scratch rows, "
            f"and max_scratch is {room.max_scratch}; rebase first, send fewer, or raise max_scratch"
        )
    depths: list[int] = []
    for row, parent in enumerate([*held.parents, *map(int, rows.parents)]):
        if not -1 <= parent < row:
            raise ValueError(
                f"slot {held.number}: scratch row {row} has parent {parent}; "
                f"it must be -1 or an earlier row, at most {row - 1}"
            )
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
    deepest = held.cached + max(depths[scratch:])
    if deepest >= room.max_context:
        raise SlotOverflow(
            f"slot {held.number}: a row at position {deepest}, "
            f"and max_context is {room.max_context}; stop the sequence, or cut the tree's depth"
        )


def check_move(held: HeldRows, path: Sequence[int], keep: Sequence[int]) -> None:
    """Refuses a path or kept rows that a slot does not have.

    Raises:
        ValueError: `path` is not a path from the last cached row, or `keep` is not below it, not ascending, or lacks the parent of one
            of its rows.
    """
    scratch, end = len(held.parents), -1
    for row in path:
        if not 0 <= row < scratch or held.parents[row] != end:
            raise ValueError(
                f"slot {held.number}: path {list(path)} breaks at row {row}, which is not a child of "
                f"{end} among {scratch} scratch rows"
            )
        end = row
    kept = {end}
    for new, row in enumerate(keep):
        in_order = new == 0 or row > keep[new - 1]
        if not 0 <= row < scratch or not in_order or held.parents[row] not in kept:
            raise ValueError(
                f"slot {held.number}: row {row} cannot be kept in {list(keep)} after path {list(path)}: "
                f"rows must be ascending, below {scratch}, and each the child of the path's end "
                "or of a kept row"
            )
        kept.add(row)
