"""The governor's hands: counts the load, times the rounds, sends drafters to rest and wakes them."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.target.board import Board
from outrider.actors.target.governor import Governor
from outrider.actors.target.passes import Outcome
from outrider.actors.target.plan import Entry
from outrider.actors.target.session import Session


class Control:
    """Decides before each round whether it may use candidates."""

    def __init__(self, board: Board, governor: Governor) -> None:
        self._board = board
        settings = board.settings
        self._is_on = settings.adaptive and not settings.lockstep
        self._governor = governor
        self._last_end: float | None = None

    def decide(self, sessions: Sequence[Session]) -> bool:
        """Whether the next round may use candidates.

        Args:
            sessions: Those that may run.
        """
        if not self._is_on:
            return True
        board = self._board
        live = board.live_drafters
        num_drafted = 0
        for session in sessions:
            if session.speculation.enabled and not session.joined.isdisjoint(live):
                num_drafted += 1
        if num_drafted == 0:
            self._last_end = None
            return True
        self._governor.enter(num_drafted)
        speculates = self._governor.speculates
        board.rest(is_resting=not speculates)
        return speculates

    def observe(self, entries: Sequence[Entry], outcome: Outcome) -> None:
        """Takes in the round that just ended."""
        if not self._is_on:
            return
        now = self._board.clock()
        began, self._last_end = self._last_end, now
        if any(entry.is_prefill or len(entry.chain) > 1 for entry in entries):
            # Prompts take time that says nothing about drafting.
            self._last_end = None
        elif began is not None:
            self._governor.observe(outcome.committed, now - began)

    def pause(self) -> None:
        """Nothing to decode: the time until the next round does not count."""
        self._last_end = None
