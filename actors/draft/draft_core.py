"""The core of a drafter: everything between what arrives and what leaves, without clock, thread or socket.

One turn of whoever drives it: `take` what arrived, `begin` a pass, send `take_reports`, run the pass's batch, `finish`. Verdicts are
so answered before the next pass: what already grew below the new base goes out first, if it is due. Between verdicts trees
grow until everything worth running is run.

Invariants: a session's state changes only here and in the parts that this puts together; a target that sends nonsense costs its own sessions at most.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from outrider.actors.draft.attachments import Attachments
from outrider.actors.draft.feedback.draft_feedback import DraftFeedback
from outrider.actors.draft.sending.send_policy import Sender
from outrider.actors.draft.state.draft_events import (
    AttachSession,
    Closed,
    Detach,
    Event,
    FeaturesReceived,
    FeaturesTaken,
    LinkLost,
    Report,
    Resynced,
    VerdictsReceived,
)
from outrider.actors.draft.state.draft_recording import DraftRecording
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.draft_stats import DraftStats
from outrider.actors.draft.state.drafter import Drafter, DraftPass
from outrider.actors.draft.trees.forest import Bools, Int64s
from outrider.actors.draft.verdict_intake import VerdictIntake
from outrider.actors.engine.protocol import Logits
from outrider.actors.tracing.recorder import Recorder

NOBODY = np.zeros(0, np.int64)


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
        self._stats = DraftStats()
        self.recording = DraftRecording(recorder or Recorder(), sessions, max_ahead=max_ahead)
        """For a timeline."""
        self._attached = Attachments(sessions, drafter, self._stats, self._left)
        self._sender = Sender(
            sessions,
            drafter,
            max_ahead=max_ahead,
            bytes_per_token=bytes_per_token,
            lockstep=lockstep,
            stats=self._stats,
            recording=self.recording,
            fail=self._attached.fail,
        )
        self.feedback = DraftFeedback(sessions, drafter, self._stats, self._attached.fail)
        """What targets tell beyond tokens."""
        self._intake = VerdictIntake(
            sessions, drafter, self._stats, self.feedback, self._attached, lockstep=lockstep
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
        return replace(self._stats)

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
                session = self._attached.attach(event)
                if session is not None:
                    self._sender.attached(session, event.round_trip_s)
                    self.feedback.attached(session)
            case LinkLost():
                for row in self.sessions.on_link(event.link).tolist():
                    self._attached.drop(self.sessions.at(row))
                self._sender.forget(event.link)
                self.feedback.lost(event.link)
            case FeaturesReceived():
                self.feedback.take(event)
                self._attached.say(FeaturesTaken(link=event.link, num_bytes=event.num_bytes))
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
                self._attached.drop(session)
            case Closed():
                self._attached.end([session.row], "the target ended the session for this drafter")

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
        for frame in self._sender.due(plan, now):
            self._attached.say(frame)
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
                    self._attached.fail(rows_E, error)
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
        self._stats.add(passes=1)
        self.sessions.is_dirty_S[grown] = True
        self._grown = grown
        self.recording.end_pass(grown)

    def fail(self, plan: DraftPass, error: Exception) -> None:
        """Takes in that a pass could not be run: its session ends; of several each has one by itself."""
        self._plan = None
        self._raised(plan.rows_E, error)

    def take_reports(self) -> list[Report]:
        """What is to be said, in order."""
        return self._attached.take_reports()

    # -- ends ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Forgets every session, silently."""
        for session in self.sessions:
            self._attached.drop(session)

    def _left(self, session: DraftSession) -> None:
        self.recording.forget(session.row)
        self.feedback.detached(session)

    def _raised(self, rows_E: Int64s, error: Exception) -> None:
        """Takes in that the method raised at work on some sessions."""
        rows_E = rows_E[self.sessions.is_attached_S[rows_E]]
        if len(rows_E) > 1:
            rows_E = self._attached.apart(rows_E, error)
            self._alone.extend(self.sessions.at(row) for row in rows_E.tolist())
        else:
            self._attached.fail(rows_E, error)


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
