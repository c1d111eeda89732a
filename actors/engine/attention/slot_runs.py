"""Which sessions of a pass can attend in one kernel call without copying a row. Pure.

Slots lie one after another in one tensor, so the rows of neighbouring slots are a view of it: a *run*. Slots within that
belong to nobody in the pass cost their arithmetic, and so does what shorter sessions are padded with, on a CPU about a tenth of
a call for each session. So sessions of like length and with like numbers of rows share a call, over small gaps; the others, and
prompts, get one of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.engine.attention.pass_layout import NOBODY, PassLayout

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

    entries: tuple[int, ...]
    """Entries of the pass, by ascending slot; `NOBODY` for a slot that is not in it."""

    first_slot: int
    """Entry i is this slot plus i."""

    @property
    def members(self) -> list[int]:
        """The entries that are somebody's."""
        return [entry for entry in self.entries if entry != NOBODY]


def slot_runs_of(layout: PassLayout) -> tuple[list[SlotRun], list[int]]:
    """Splits the sessions of a pass.

    Returns:
        The runs, and the entries that attend by themselves, ascending.
    """
    slots, counts = layout.slots, layout.added.counts_B.tolist()
    alike: dict[tuple[int, int], list[int]] = {}
    for entry, (total, count) in enumerate(zip(layout.totals, counts, strict=True)):
        if count <= MOST_ROWS:
            alike.setdefault(_size(total, count), []).append(entry)
    found: list[SlotRun] = []
    for members in alike.values():
        if len(members) >= FEWEST_SESSIONS:
            members.sort(key=lambda entry: slots[entry])
            found += _split(members, slots)
    every = list(range(len(slots)))
    if not found:
        return [], every
    together = {entry for run in found for entry in run.members}
    return found, [entry for entry in every if entry not in together]


def _in_place(members: Sequence[int], slots: Sequence[int]) -> SlotRun:
    first, last = slots[members[0]], slots[members[-1]]
    entries = [NOBODY] * (last - first + 1)
    for entry in members:
        entries[slots[entry] - first] = entry
    return SlotRun(entries=tuple(entries), first_slot=first)


def _size(total: int, count: int) -> tuple[int, int]:
    """Equal for sessions that are padded to at most twice their size."""
    return (max(total, SHORTEST) - 1).bit_length(), (count - 1).bit_length()


def _split(members: Sequence[int], slots: Sequence[int]) -> list[SlotRun]:
    """Cuts at wide gaps, and drops what is too short. No slot is in a pass twice."""
    runs: list[list[int]] = []
    for entry in members:
        if runs and slots[entry] - slots[runs[-1][-1]] <= WIDEST_GAP + 1:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return [_in_place(run, slots) for run in runs if len(run) >= FEWEST_SESSIONS]
