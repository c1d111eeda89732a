"""Which sessions of a pass can attend in one kernel call without copying a row. Pure.

Slots lie one after another in one tensor, so the rows of neighbouring slots are a view of it: a *run*. Slots within that
belong to nobody in the pass cost their arithmetic, and so does what shorter sessions are padded with, on a CPU about a tenth of
a call for each session. So sessions of like length and with like numbers of rows share a call, over small gaps; the others, and
prompts, get one of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.engine.attention.pass_layout import PassLayout
from outrider.actors.engine.kv.slot import SlotGrowth

MOST_ROWS = 16
"""Rows of one session, beyond which its arithmetic outweighs a call."""

FEWEST_SESSIONS = 3
"""Of a run: gathering queries and scattering results takes as long as a call or two."""

WIDEST_GAP = 4
"""Slots between two of a run that belong to nobody."""

SHORTEST = 128
"""Rows of a slot up to which sessions count as equally long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRun:
    """Neighbouring slots whose sessions share a call."""

    entries: tuple[int | None, ...]
    """Segments of the pass, by ascending slot; None for a slot of nobody."""

    first_slot: int
    """Entry i is this slot plus i."""

    @property
    def members(self) -> list[int]:
        """The segments."""
        return [index for index in self.entries if index is not None]


def slot_runs_of(layout: PassLayout) -> tuple[list[SlotRun], list[int]]:
    """Splits the sessions of a pass.

    Returns:
        The runs, and the segments that attend by themselves, ascending.
    """
    every = list(range(len(layout.segments)))
    alike: dict[tuple[int, int], list[int]] = {}
    for index, segment in enumerate(layout.segments):
        if len(segment.parents) <= MOST_ROWS:
            alike.setdefault(_size(segment), []).append(index)
    found: list[SlotRun] = []
    for members in alike.values():
        if len(members) >= FEWEST_SESSIONS:
            members.sort(key=lambda index: layout.segments[index].slot)
            found += _split(members, layout.segments)
    if not found:
        return [], every
    together = {index for run in found for index in run.members}
    return found, [index for index in every if index not in together]


def _in_place(members: Sequence[int], segments: Sequence[SlotGrowth]) -> SlotRun:
    first, last = segments[members[0]].slot, segments[members[-1]].slot
    entries: list[int | None] = [None] * (last - first + 1)
    for index in members:
        entries[segments[index].slot - first] = index
    return SlotRun(entries=tuple(entries), first_slot=first)


def _size(segment: SlotGrowth) -> tuple[int, int]:
    """Equal for sessions that are padded to at most twice their size."""
    rows = max(segment.total, SHORTEST) - 1
    return rows.bit_length(), (len(segment.parents) - 1).bit_length()


def _split(members: Sequence[int], segments: Sequence[SlotGrowth]) -> list[SlotRun]:
    """Cuts at wide gaps, and drops what is too short. No slot is in a pass twice."""
    runs: list[list[int]] = []
    for index in members:
        slot = segments[index].slot
        if runs and slot - segments[runs[-1][-1]].slot <= WIDEST_GAP + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return [_in_place(run, segments) for run in runs if len(run) >= FEWEST_SESSIONS]
