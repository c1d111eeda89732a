"""The core of a drafter: everything between what arrives and what leaves, without clock, thread or socket.

One turn of whoever drives it: `take` what arrived, `begin` a pass, send `take_reports`, run the pass's batch, `finish`. Verdicts are
so answered before the next pass: what already grew below the new base goes out first, if it is due. Between verdicts trees
grow until everything worth running is run.

Invariants: a session's state changes only here; a failure of the drafting method ends the session it was working on, never the
drafter. If it was working on several, it begins anew with each of them by itself, and only those end for which it fails again. A target
that sends nonsense costs its own sessions at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import grpc
import numpy as np
import structlog
from numpy.typing import NDArray

from outrider.actors.draft.feedback.draft_feedback import DraftFeedback
from outrider.actors.draft.model.fitting import no_room
from outrider.actors.draft.sending.send_policy import Sender
from outrider.actors.draft.state.draft_events import (
    Attached,
    AttachRefused,
    AttachSession,
    Closed,
    Detach,
    Ended,
    Event,
    FeaturesReceived,
    FeaturesTaken,
    LinkLost,
    Report,
    Resynced,
    ResyncWanted,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.draft.state.draft_recording import DraftRecording
from outrider.actors.draft.state.draft_sessions import UNKNOWN, DraftSession, DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.draft_stats import Counts, DraftStats
from outrider.actors.draft.state.drafter import CannotDraft, Drafter, DraftPass, NoRoom
from outrider.actors.draft.verdict_intake import VerdictIntake
from outrider.actors.engine.protocol import Logits
from outrider.actors.tracing.recorder import Recorder

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]

NOBODY = np.zeros(0, np.int64)

_log = structlog.get_logger(__name__)


class DraftCore:
    """Serves sessions with one drafting method."""

    def __init__(
        self,
        sessions: DraftSessions,
        drafter: Drafter,
        *,
        max_ahead: int,
        bytes_per_token: float,
        lockstep: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        """
        Args:
            sessions: That the method grows trees of; none is attached.
            drafter: The method.
            max_ahead: Nodes of one session below its base that were sent, at most.
            bytes_per_token: Bytes that a committed token may cost on the wire.
            lockstep: Send one finished tree and wait for its verdict.
            recorder: Takes records for a timeline; None: nobody asks for them.
        """
        self.sessions = sessions
        self.drafter = drafter
        self._lockstep = lockstep
        self._counts = Counts()
        self._reports: list[Report] = []
        self._sender = Sender(
            sessions,
            drafter,
            max_ahead=max_ahead,
            bytes_per_token=bytes_per_token,
            lockstep=lockstep,
            fail=self._fail,
        )
        self.recording = DraftRecording(recorder or Recorder(), sessions, max_ahead=max_ahead)
        """For a timeline."""
        self.feedback = DraftFeedback(
            sessions,
            drafter,
            self._counts,
            lambda session, error: self._fail(np.array([session.row]), error),
        )
        """What targets tell beyond tokens."""
        self._intake = VerdictIntake(
            sessions,
            drafter,
            self._counts,
            self.feedback,
            lockstep=lockstep,
            say=lambda report: self._reports.append(report),
            fail=self._fail,
            apart=self._apart,
            end=self._end,
        )
        self._alone: deque[DraftSession] = deque()
        """Sessions of a pass that failed, each of which has its next one by itself."""
        self._plan: DraftPass | None = None
        """The pass that was begun last, and when."""
        self._began = 0.0
        self._grown = NOBODY
        """Sessions that have new candidates since then."""

    @property
    def stats(self) -> DraftStats:
        """What was done so far."""
        return self._counts.stats

    # -- in --------------------------------------------------------------------------------------------------------

    def take(self, event: Event, now: float, arrived: float | None = None) -> None:
        """Takes in what happened. Not while a pass is run.

        Args:
            event: What.
            now: Monotonic time, seconds.
            arrived: When it came, a draft pass may lie between; None: now. What a verdict says of the target's future counts
                from here.
        """
        match event:
            case VerdictsReceived():
                arrived = now if arrived is None else arrived
                self._sender.told(event.link, event.verdicts, arrived)
                self._intake.take_verdicts(event.link, event.verdicts, now)
            case AttachSession():
                self._attach(event)
            case LinkLost():
                for row in self.sessions.on_link(event.link).tolist():
                    self._drop(self.sessions.at(row))
                self._sender.forget(event.link)
                self.feedback.lost(event.link)
            case FeaturesReceived():
                self.feedback.take(event)
                self._reports.append(FeaturesTaken(link=event.link, num_bytes=event.num_bytes))
            case Resynced() | Detach() | Closed():
                session = self.sessions.find(event.key)
                if session is not None:
                    self._take_known(session, event, now)
                elif not isinstance(event, Resynced):
                    self.feedback.closed(event.key)
        self.feedback.settle()

    def _take_known(
        self, session: DraftSession, event: Resynced | Detach | Closed, now: float
    ) -> None:
        match event:
            case Resynced():
                self._intake.take_resync(session, event, now)
            case Detach():
                self._drop(session)
            case Closed():
                self._end([session.row], "the target ended the session for this drafter")

    def _attach(self, event: AttachSession) -> None:
        sessions = self.sessions
        old = sessions.find(event.key)
        if old is not None:
            self._drop(old)
        if len(sessions) == len(sessions.sessions):
            full = str(no_room(self.drafter.num_slots))
            self._refuse(event.key, grpc.StatusCode.RESOURCE_EXHAUSTED, full)
            return
        rests = bool(sessions.is_resting(sessions.on_link(event.key.link)).any())
        session = sessions.add(event)
        # A target that has sent its drafters to rest will say otherwise if that is over.
        sessions.credits_S[session.row] = 0 if rests else UNKNOWN
        try:
            self.drafter.attach(session)
        except (NoRoom, CannotDraft) as error:
            sessions.remove(session)
            code = grpc.StatusCode.FAILED_PRECONDITION
            if isinstance(error, NoRoom):
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
            self._refuse(event.key, code, str(error))
            return
        except Exception as error:  # noqa: BLE001 - whatever a method raises must not end the drafter
            self._note_failure([session], error)
            sessions.remove(session)
            self._refuse(event.key, grpc.StatusCode.INTERNAL, _failed(error))
            return
        self._sender.attached(session, event.round_trip_s)
        self.feedback.attached(session)
        _log.debug("session attached", request_id=event.request_id)
        self._reports.append(Attached(key=event.key))
        # Verdicts that were sent before the attachment are gone: the answer tells what they said, and the credits.
        self._reports.append(ResyncWanted(key=event.key, length=session.length))

    def _refuse(self, key: SessionKey, code: grpc.StatusCode, message: str) -> None:
        self._reports.append(AttachRefused(key=key, code=code, message=message))

    # -- passes ----------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> DraftPass | None:
        """The next pass, whose batch is to be run; None: there is nothing to do until something arrives."""
        sessions = self.sessions
        if self._plan is not None:
            done, self._plan = self._plan, None
            try:
                self.drafter.took(done, now - self._began)
            except Exception as error:  # noqa: BLE001 - whatever a method raises must not end the drafter
                self._raised(done.rows_E, error)
        sessions.ready_s_S[self._grown] = np.fmin(sessions.ready_s_S[self._grown], now)
        self._grown = NOBODY
        is_able_S = sessions.is_attached_S & np.isnan(sessions.asked_at_S)
        np.logical_and(is_able_S, sessions.credits_S, out=is_able_S)
        is_able_S[sessions.is_waiting_S] = False
        plan = self._planned(is_able_S)
        self._began = now
        self._reports += self._sender.due(plan, now, self._counts, self.recording)
        if plan is None:
            return None
        if not sessions.is_attached_S[plan.rows_E].all():
            # The method has failed for one of them meanwhile.
            return self.begin(now)
        self._plan = plan
        self.recording.begin_pass()
        return plan

    def _planned(self, is_able_S: Bools) -> DraftPass | None:
        """What the method does next, for a session that is to be by itself or for all that are able."""
        has_failed = False
        while True:
            rows_E = self._next_alone(is_able_S)
            is_alone = len(rows_E) > 0
            if not is_alone:
                rows_E = (is_able_S & self.sessions.is_attached_S).nonzero()[0]
            if not len(rows_E):
                return None
            try:
                plan = self.drafter.plan(rows_E)
            except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the drafter
                if has_failed and not is_alone:
                    # Each of them was fine by itself.
                    self._fail(rows_E, error)
                    return None
                self._raised(rows_E, error)
                has_failed |= not is_alone
                continue
            if plan is not None or not is_alone:
                return plan

    def _next_alone(self, is_able_S: Bools) -> Int64s:
        """The next session that is to have a pass by itself and is able to; none of those that are not now."""
        while self._alone:
            session = self._alone.popleft()
            if self.sessions.sessions[session.row] is session and is_able_S[session.row]:
                return np.array([session.row])
        return NOBODY

    def finish(self, plan: DraftPass, logits: Logits | None) -> None:
        """Takes in what a pass gave.

        Args:
            plan: From `begin`.
            logits: Of its batch; None if it has none.
        """
        if logits is not None and logits.recording_s:
            # It took longer than passes do.
            self._plan = None
        try:
            grown = self.drafter.grow(plan, logits)
            if logits is not None:
                # Nothing that was grown leaves before the pass is over, whether the method has waited or not.
                logits.wait()
        except Exception as error:  # noqa: BLE001 - whatever a model raises must not end the drafter
            self.fail(plan, error)
            return
        self._counts.add(passes=1)
        self.sessions.is_dirty_S[grown] = True
        self._grown = grown
        self.recording.end_pass(grown)

    def fail(self, plan: DraftPass, error: Exception) -> None:
        """Takes in that a pass could not be run: its session ends; of several each has one by itself."""
        self._plan = None
        self._raised(plan.rows_E, error)

    def take_reports(self) -> list[Report]:
        """What is to be said, in order."""
        reports, self._reports = self._reports, []
        return reports

    # -- ends ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Forgets every session, silently."""
        for session in self.sessions:
            self._drop(session)

    def _raised(self, rows_E: Int64s, error: Exception) -> None:
        """Takes in that the method raised at work on some sessions."""
        rows_E = rows_E[self.sessions.is_attached_S[rows_E]]
        if len(rows_E) > 1:
            self._alone.extend(self.sessions.at(row) for row in self._apart(rows_E, error).tolist())
        else:
            self._fail(rows_E, error)

    def _apart(self, rows_E: Int64s, error: Exception) -> Int64s:
        """Has the method begin anew with the texts of several sessions: nobody knows for which of them it raised, and what it was at may
        be half done. Returns those that go on."""
        sessions = [self.sessions.at(row) for row in rows_E.tolist()]
        self._note_failure(sessions, error)
        for session in sessions:
            try:
                self.drafter.rewrite(session, session.length)
            except Exception as again:  # noqa: BLE001 - whatever a model raises must not end the drafter
                self._fail(np.array([session.row]), again)
        return rows_E[self.sessions.is_attached_S[rows_E]]

    def _fail(self, rows_E: Int64s, error: Exception) -> None:
        rows = rows_E.tolist()
        self._note_failure([self.sessions.at(row) for row in rows], error)
        self._end(rows, _failed(error))

    def _note_failure(self, sessions: Sequence[DraftSession], error: Exception) -> None:
        self._counts.add(failures=1)
        requests = [session.request_id for session in sessions]
        _log.error("drafting failed", request_ids=requests, error=repr(error), exc_info=error)

    def _end(self, rows: Iterable[int], message: str) -> None:
        for row in rows:
            session = self.sessions.at(row)
            self._drop(session)
            self._reports.append(Ended(key=session.key, message=message))

    def _drop(self, session: DraftSession) -> None:
        _log.debug("session left", request_id=session.request_id)
        self.recording.forget(session.row)
        self.feedback.detached(session)
        try:
            self.drafter.detach(session)
        except Exception as error:  # noqa: BLE001 - whatever a method raises must not end the drafter
            self._note_failure([session], error)
        self.sessions.remove(session)


def _failed(error: Exception) -> str:
    """What a coordinator is told of an error of the method."""
    return f"drafting failed: {error!r}; attach another drafter"


def core_of(
    settings: DraftSettings,
    sessions: DraftSessions,
    drafter: Drafter,
    recorder: Recorder | None = None,
) -> DraftCore:
    """The core that a drafter's settings ask for."""
    return DraftCore(
        sessions,
        drafter,
        max_ahead=settings.max_ahead,
        bytes_per_token=settings.bytes_per_token,
        lockstep=settings.lockstep,
        recorder=recorder,
    )
