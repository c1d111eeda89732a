"""Which sessions are attached to a drafter, and how they end.

A failure of the drafting method ends the session that it was at work on, never the drafter. If it was at work on several, it begins anew with each of them
by itself, and only those end for which it fails again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import grpc
import numpy as np
import structlog

from outrider.actors.draft.model.fitting import no_room
from outrider.actors.draft.state.draft_events import (
    Attached,
    AttachRefused,
    AttachSession,
    Ended,
    Report,
    ResyncWanted,
    SessionKey,
)
from outrider.actors.draft.state.draft_sessions import UNKNOWN, DraftSession, DraftSessions
from outrider.actors.draft.state.draft_stats import DraftStats
from outrider.actors.draft.state.drafter import CannotDraft, Drafter, NoRoom
from outrider.actors.draft.trees.forest import Int64s

_log = structlog.get_logger(__name__)


class Attachments:
    """Attaches sessions, ends them, and keeps what is to be said of them and of everything else."""

    def __init__(
        self,
        sessions: DraftSessions,
        drafter: Drafter,
        stats: DraftStats,
        left: Callable[[DraftSession], None],
    ) -> None:
        """
        Args:
            sessions: That the method grows trees of.
            drafter: The method.
            stats: Counts failures.
            left: Told of each session that goes, while it is still there.
        """
        self._sessions = sessions
        self._drafter = drafter
        self._stats = stats
        self._left = left
        self._reports: list[Report] = []

    def say(self, report: Report) -> None:
        """Queues a report."""
        self._reports.append(report)

    def take_reports(self) -> list[Report]:
        """What was queued, in order."""
        reports, self._reports = self._reports, []
        return reports

    def attach(self, event: AttachSession) -> DraftSession | None:
        """Takes a session in, in place of one with its key; None: it was refused."""
        sessions = self._sessions
        old = sessions.find(event.key)
        if old is not None:
            self.drop(old)
        if len(sessions) == len(sessions.sessions):
            full = str(no_room(self._drafter.num_slots))
            self._refuse(event.key, grpc.StatusCode.RESOURCE_EXHAUSTED, full)
            return None
        rests = bool(sessions.is_resting(sessions.on_link(event.key.link)).any())
        session = sessions.add(event)
        # A target that has sent its drafters to rest will say otherwise if that is over.
        sessions.credits_S[session.row] = 0 if rests else UNKNOWN
        try:
            self._drafter.attach(session)
        except (NoRoom, CannotDraft) as error:
            sessions.remove(session)
            code = grpc.StatusCode.FAILED_PRECONDITION
            if isinstance(error, NoRoom):
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
            self._refuse(event.key, code, str(error))
            return None
        except Exception as error:  # noqa: BLE001 - whatever a method raises must not end the drafter
            self._note_failure([session], error)
            sessions.remove(session)
            self._refuse(event.key, grpc.StatusCode.INTERNAL, _failed(error))
            return None
        _log.debug("session attached", request_id=event.request_id)
        self.say(Attached(key=event.key))
        # Verdicts that were sent before the attachment are gone: the answer tells what they said, and the credits.
        self.say(ResyncWanted(key=event.key, length=session.length))
        return session

    def drop(self, session: DraftSession) -> None:
        """Forgets a session, silently."""
        _log.debug("session left", request_id=session.request_id)
        self._left(session)
        try:
            self._drafter.detach(session)
        except Exception as error:  # noqa: BLE001 - whatever a method raises must not end the drafter
            self._note_failure([session], error)
        self._sessions.remove(session)

    def end(self, rows: Iterable[int], message: str) -> None:
        """Ends sessions, and tells why."""
        for row in rows:
            session = self._sessions.at(row)
            self.drop(session)
            self.say(Ended(key=session.key, message=message))

    def fail(self, rows_E: Int64s, error: Exception) -> None:
        """Ends the sessions that the method was at work on when it raised."""
        rows = rows_E.tolist()
        self._note_failure([self._sessions.at(row) for row in rows], error)
        self.end(rows, _failed(error))

    def apart(self, rows_E: Int64s, error: Exception) -> Int64s:
        """Has the method begin anew with the texts of several sessions: nobody knows for which of them it raised, and what it was at may
        be half done. Returns those that go on."""
        sessions = [self._sessions.at(row) for row in rows_E.tolist()]
        self._note_failure(sessions, error)
        for session in sessions:
            try:
                self._drafter.rewrite(session, session.length)
            except Exception as again:  # noqa: BLE001 - whatever a model raises must not end the drafter
                self.fail(np.array([session.row]), again)
        return rows_E[self._sessions.is_attached_S[rows_E]]

    def _refuse(self, key: SessionKey, code: grpc.StatusCode, message: str) -> None:
        self.say(AttachRefused(key=key, code=code, message=message))

    def _note_failure(self, sessions: Sequence[DraftSession], error: Exception) -> None:
        self._stats.add(failures=1)
        requests = [session.request_id for session in sessions]
        _log.error("drafting failed", request_ids=requests, error=repr(error), exc_info=error)


def _failed(error: Exception) -> str:
    """What a coordinator is told of an error of the method."""
    return f"drafting failed: {error!r}; attach another drafter"
