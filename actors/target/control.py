"""The governor's hands: counts the load, times the rounds, sends drafters to rest and wakes them."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.target.board import Board
from outrider.actors.target.governor import Governor
from outrider.actors.target.passes import Outcome
from outrider.actors.target.plan import Entry
from outrider.actors.target.session import Session

CATCH_UP_ROUNDS = 256
"""Rounds after a rest that are not counted until the drafters have caught up. Drafters run what they missed in large chunks, so
it takes far fewer; a drafter that has nothing to propose would otherwise keep the comparison from ending."""

BEHIND_SHARE = 0.1
"""Fraction of the sessions that may still be behind when counting begins: the last ones must not hold up all."""


class Control:
    """Decides before each round whether it may use candidates."""

    def __init__(self, board: Board, governor: Governor) -> None:
        self._board = board
        settings = board.settings
        self._is_on = settings.adaptive and not settings.lockstep
        self._governor = governor
        self._last_end: float | None = None
        self._behind: dict[int, int] = {}
        """Sessions whose drafters were woken and have not sent anything yet, and the messages that they had sent before."""
        self._catch_up_left = 0
        self._messages: dict[int, int] = {}
        """Sessions of the last round, and the messages with candidates that had come for them."""

    def decide(self, sessions: Sequence[Session]) -> bool:
        """Whether the next round may use candidates.

        Args:
            sessions: Those that may run.
        """
        if not self._is_on:
            return True
        board = self._board
        drafted = [session for session in sessions if self._is_drafted(session)]
        if not drafted:
            self.pause()
            return True
        self._governor.enter(len(drafted))
        speculates = self._governor.speculates
        if speculates and board.is_resting:
            self._behind = {one.handle: one.stats.candidate_messages for one in drafted}
            self._catch_up_left = CATCH_UP_ROUNDS
        board.rest(is_resting=not speculates)
        return speculates

    def observe(self, entries: Sequence[Entry], outcome: Outcome) -> None:
        """Takes in the round that just ended."""
        if not self._is_on:
            return
        now = self._board.clock()
        began, self._last_end = self._last_end, now
        is_late = self._is_late(entries)
        num_prompt = sum(len(entry.chain) - (not entry.is_prefill) for entry in entries)
        # After a long rest drafters first run what they missed; counted, that would speak against ever waking them.
        are_behind = self._are_behind(entries)
        if began is not None:
            # Prompts count: under load most passes have some, and drafters that share cores slow them down, too.
            cost, sessions = self._board.cost, max(len(self._board.sessions), 1)
            self._governor.observe(
                cost.tokens_worth(outcome.committed, sessions),
                now - began,
                prompts=cost.prompts_worth(num_prompt),
                is_late=is_late,
                is_counted=not are_behind,
            )

    def pause(self) -> None:
        """Nothing to decode: the time until the next round does not count."""
        self._last_end = None
        self._governor.pause()

    def _is_drafted(self, session: Session) -> bool:
        """Whether a drafter works for a session, or would if it were not at rest.

        At rest it may not be attached, and one that has started again not even connected: it is when it is wanted.
        """
        if not session.speculation.enabled:
            return False
        if self._board.is_resting or session.handle in self._behind:
            return bool(session.allowed)
        return not session.joined.isdisjoint(self._board.live_drafters)

    def _is_late(self, entries: Sequence[Entry]) -> bool | None:
        """Whether candidates came since the last round, but none in time; None if none came at all.

        Those that were in time but not worth their rows are not late: the text is hard to foresee, which passes.
        """
        former = self._messages
        self._messages = {e.session.handle: e.session.stats.candidate_messages for e in entries}
        if any(entry.is_drafted or entry.is_in_time for entry in entries):
            return False
        came = any(count > former.get(handle, count) for handle, count in self._messages.items())
        return True if came else None

    def _are_behind(self, entries: Sequence[Entry]) -> bool:
        """Whether many of the drafters that were woken have not caught up."""
        if not self._behind or self._board.is_resting:
            return False
        self._catch_up_left -= 1
        for entry in entries:
            session = entry.session
            if session.stats.candidate_messages > self._behind.get(session.handle, -1):
                self._behind.pop(session.handle, None)
        if self._catch_up_left <= 0:
            self._behind.clear()
        sessions = self._board.sessions
        num_behind = sum(handle in sessions for handle in self._behind)
        if num_behind <= BEHIND_SHARE * len(entries):
            self._behind.clear()
        return bool(self._behind)
