"""Whose rows the next draft pass runs: sessions that lack committed tokens and sessions that grow take turns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from outrider.actors.draft.frontier import Frontier, Wish, entry_of
from outrider.actors.draft.seat import Entry, Seat, catch_up_rows
from outrider.actors.draft.session import DraftSession

CATCH_UP = 16
"""Committed tokens that may ride along in a draft pass. More make the pass longer for the other sessions; beyond this the
session is caught up in passes of its own."""

MAX_PASS_NODES = 64
"""Nodes of all sessions in one draft pass. Fewer waste passes under load, more make each session wait for the others'
less valuable nodes."""

Seats = Mapping[DraftSession, Seat]


class Turns:
    """Fills passes."""

    def __init__(self, frontier: Frontier, *, prefill_chunk: int, vocab_size: int) -> None:
        """
        Args:
            frontier: Chooses the nodes of growing trees.
            prefill_chunk: Committed tokens in one pass, at most.
            vocab_size: Of the draft model.
        """
        self._frontier = frontier
        self._prefill_chunk = prefill_chunk
        self._vocab_size = vocab_size
        self._drafted_last = False

    def next_entries(self, sessions: Collection[DraftSession], seats: Seats) -> list[Entry]:
        """The next pass; empty if there is nothing to run until a verdict. A long prompt does not stall the others."""
        behind: list[DraftSession] = []
        ready: list[DraftSession] = []
        for session in sessions:
            if session.tree.is_expanded:
                ready.append(session)
            elif self._frontier.deepest(session, seats[session]) >= 1:
                lag = session.length - seats[session].cached
                (behind if lag > CATCH_UP else ready).append(session)
        entries: list[Entry] = []
        if ready and not (behind and self._drafted_last):
            entries = self._draft_entries(ready, seats)
        self._drafted_last = bool(entries)
        if not entries and behind:
            entries = self._prefill_entries(behind, seats)
        if not entries and ready:
            entries = self._draft_entries(ready, seats)
        return entries

    def _prefill_entries(self, behind: Sequence[DraftSession], seats: Seats) -> list[Entry]:
        entries: list[Entry] = []
        room = self._prefill_chunk
        for session in behind:
            if room <= 0:
                break
            entry = self._catch_up(session, seats[session], room)
            room -= len(entry.rows.tokens)
            entries.append(entry)
        return entries

    def _draft_entries(self, ready: Sequence[DraftSession], seats: Seats) -> list[Entry]:
        entries: list[Entry] = []
        wishes: list[Wish] = []
        room = MAX_PASS_NODES
        for index, session in enumerate(ready):
            seat = seats[session]
            if not session.tree.is_expanded:
                if room > 0:
                    entries.append(self._catch_up(session, seat, self._prefill_chunk))
                    room -= len(entries[-1].rows.tokens)
                continue
            nodes = self._frontier.expandable(session, seat)
            if nodes:
                wishes.append((nodes[0][0], index, nodes))
        for _, index, nodes in self._frontier.within(wishes, room):
            session = ready[index]
            entries.append(entry_of(session, seats[session], [node for _, node in nodes]))
        return entries

    def _catch_up(self, session: DraftSession, seat: Seat, room: int) -> Entry:
        rows = catch_up_rows(
            session, slot=seat.slot, cached=seat.cached, room=room, vocab_size=self._vocab_size
        )
        return Entry(session=session, seat=seat, rows=rows)
