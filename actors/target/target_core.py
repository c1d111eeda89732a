"""The target without threads, clocks and sockets: events in, a pass to run or a time to wait, outputs out.

Whoever drives it (`target_worker.py` in real time, `cluster.simulate` in virtual time) repeats: `take` what arrived, `begin`, `launch` the
pass, `finish` and `tidy` it. What `take_outputs` gives is sent while the next pass runs, or before it is planned if that pass waits for answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import structlog

from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.target import intake, opening
from outrider.actors.target.feedback.feedback_taps import FeedbackTaps
from outrider.actors.target.next_pass import Planner
from outrider.actors.target.pending_round import PendingRound
from outrider.actors.target.schedule.warm_up import time_passes
from outrider.actors.target.state.passes import Pass, Round, plain
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    CloseSession,
    CloseStream,
    DrafterJoined,
    DrafterLeft,
    Event,
    Failed,
    FeedbackClosed,
    FeedbackOpened,
    Opened,
    OpenSession,
    Output,
    ResyncRequest,
    Steer,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.commit import commit, end_sessions
from outrider.actors.target.verify.drawing import NotNumbers
from outrider.actors.target.verify.draws_by_kind import draws_by_kind
from outrider.actors.target.verify.walks import Walks, moves_of
from outrider.actors.tracing.recorder import Recorder

_log = structlog.get_logger(__name__)

REMEDY = "serve it with another dtype (float32 or bfloat16), or check its checkpoint"
"""Where scores are not numbers: half precision overflows, and files are damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """There is nothing to run yet."""

    seconds: float | None
    """Look again then at the latest; None: not before there is an event."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Computed:
    """What the model gave."""

    logits: Logits
    walks: Walks
    """What was decided of it."""


class TargetCore:
    """Everything a target decides. Used by one thread at a time."""

    def __init__(
        self,
        engine: Engine,
        settings: TargetSettings,
        recorder: Recorder | None,
        new_handle: Callable[[], int],
    ) -> None:
        """Nothing is there yet.

        Args:
            engine: The target model.
            settings: What the actor was told.
            recorder: Takes records for a timeline; None: nobody asks for them.
            new_handle: Names sessions to drafters.
        """
        self.state = TargetState(engine, settings, recorder or Recorder(), new_handle)
        self._planner = Planner(self.state)
        self._noise = GumbelNoise(engine.spec.vocab_size, engine.spec.device)
        self._draws = draws_by_kind(self.state)
        self._feedback = FeedbackTaps(self.state.table)
        self._untidy: tuple[Pass, Walks, Round, Logits] | None = None
        self._pending = PendingRound(self.state)
        self._committed = 0
        """Tokens of the last round."""

    def warm_up(self, clock: Callable[[], float]) -> None:
        """Runs passes of different sizes, so that the cost model knows the shape of their times.

        Args:
            clock: Seconds; monotone.
        """
        state = self.state
        most_rows = state.engine.num_slots + state.settings.max_batch_nodes
        state.cost.set_curve(time_passes(state.engine, clock, most_rows=most_rows))

    def take_busy(self, now: float) -> float:
        """Fraction of the time since the last call in which passes ran, 0 to 1."""
        return self.state.tally.take_busy(now)

    def take_outputs(self) -> list[Output]:
        """What coordinators and drafters are to hear, in order: tokens first, as clients wait for them."""
        return self._pending.take_outputs()

    # -- events ----------------------------------------------------------------------------------------------------

    def take(self, event: Event, now: float, arrived: float | None = None) -> None:
        """Takes an event in.

        Args:
            event: What happened.
            now: Seconds of the driver's clock.
            arrived: When it came; None: now.
        """
        state = self.state
        arrived = now if arrived is None else arrived
        if isinstance(event, CandidatesReceived):
            intake.take(state, event, self._planner.start.waiting, arrived=arrived, now=now)
            return
        self._pending.tell_all()
        self.tidy()
        match event:
            case OpenSession():
                self._open(event, now)
            case CloseSession():
                state.abort(event.owner, is_told=True)
            case CloseStream():
                for owner in [o for o in state.owners if o.stream == event.stream]:
                    state.abort(owner, is_told=False)
            case Steer():
                intake.steer(state, event)
            case DrafterJoined():
                state.join_drafter(event.drafter, takes_turns=event.takes_turns)
            case DrafterLeft():
                state.lose_drafter(event.drafter)
            case ResyncRequest():
                intake.answer_resync(state, event)
            case FeedbackOpened():
                self._feedback.open(state.number_of(event.drafter), event)
            case FeedbackClosed():
                self._feedback.close(state.number_of(event.drafter))

    def _open(self, event: OpenSession, now: float) -> None:
        state = self.state
        try:
            session = opening.open_session(event, state, self._noise, now=now)
        except opening.OpenRefused as refusal:
            state.say(Failed(owner=event.owner, code=refusal.code, message=str(refusal)))
            _log.info("session refused", request_id=event.request_id, reason=str(refusal))
            return
        state.say(Opened(owner=event.owner, handle=session.handle))
        _log.debug("session opened", request_id=session.request_id, prompt_tokens=session.length)

    # -- passes ----------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> Pass | Wait:
        """The next pass, or how long to wait.

        Args:
            now: Seconds of the driver's clock.
        """
        self.tidy()
        self._start_sessions()
        pass_ = self._planner.plan(now)
        if isinstance(pass_, Pass):
            self._feedback.ask(pass_, is_resting=self.state.is_resting)
            self.state.recording.begin_pass()
            return pass_
        return Wait(seconds=None if math.isinf(pass_) else pass_)

    def launch(self, pass_: Pass) -> Callable[[], Computed]:
        """Begins a pass; what is returned waits for it. Sessions are not touched. Both raise whatever the model raises."""
        logits = self.state.engine.forward(pass_.batch)
        reads = [draws.start(pass_, logits) for draws in self._draws]

        def read() -> Computed:
            walks = Walks.united(len(pass_.rows_E), (read() for read in reads))
            logits.wait()
            return Computed(logits=logits, walks=walks)

        return read

    def finish(self, pass_: Pass, computed: Computed, now: float) -> bool:
        """Commits what a pass gave.

        Args:
            pass_: What was run.
            computed: What came of it.
            now: Seconds of the driver's clock, when the model was through.

        Returns:
            Whether the next pass waits for what drafters answer, so that they have to hear of this one at once.
        """
        state = self.state
        self._pending.tell_all()
        state.clock.passed(pass_.began_s, now)
        walks = computed.walks
        done = commit(state, pass_, walks, computed.logits, now=now)
        state.table.cached_S[pass_.rows_E] += pass_.chains_E
        # What was accepted has its rows; the last token of a round has none yet.
        accepted_E = np.maximum(done.counts_E - 1, 0)
        state.table.cached_S[done.rows_E] += accepted_E
        next_ = self._planner.finished(pass_, done, now)
        self._pending.ended(pass_, done, walks, next_, now)
        self._untidy = pass_, walks, done, computed.logits
        self._committed = done.num_tokens
        return next_.wait_s > 0.0

    def tidy(self) -> None:
        """Puts the keys and values of the last pass in order, and ends the sessions whose text is over. What drafters asked for beyond
        tokens is picked here, so that no verdict waits for it."""
        if self._untidy is None:
            return
        (pass_, walks, done, logits), self._untidy = self._untidy, None
        for ready in self._feedback.pick(pass_, walks, done, logits):
            self.state.say(ready)
        kept_E = np.zeros(len(pass_.rows_E), np.int64)
        kept_E[done.entries_E] = np.maximum(done.counts_E - 1, 0)
        self.state.engine.rebase(moves_of(pass_, walks, kept_E))
        if np.count_nonzero(done.over_E):
            self._pending.tell_coordinators()
            end_sessions(self.state, done)

    def booked(self, pass_: Pass, *, model_s: float, now: float, is_usual: bool = True) -> None:
        """Takes in how long a pass took, everything included.

        Args:
            pass_: What was run.
            model_s: Seconds in the model.
            now: Seconds of the driver's clock, when all was done.
            is_usual: A pass of this kind takes as long again.
        """
        self._planner.booked(
            pass_, model_s=model_s, now=now, committed=self._committed, is_usual=is_usual
        )
        self.state.recording.end_pass(pass_, model_s=model_s)

    # -- failures --------------------------------------------------------------------------------------------------

    def apart(self, pass_: Pass, now: float) -> list[Pass]:
        """A pass that failed, session by session and without candidates, so that whatever one of them brought along costs the
        others nothing but time. Nothing of it stays in their slots: rows that are no numbers would spoil those that come."""
        self._pending.tell_all()
        self.state.tally.failed_passes += 1
        passes = []
        for entry, row in enumerate(pass_.rows_E.tolist()):
            cached = int(self.state.table.cached_S[row])
            self.state.engine.release(row, keep=cached)
            self.state.engine.acquire(row, keep=cached)
            passes.append(plain(self.state.table, pass_, entry, now=now))
        return passes

    def fail(self, pass_: Pass, error: Exception) -> None:
        """Ends the sessions of a pass that failed alone."""
        message, code = f"the target pass failed: {type(error).__name__}: {error}", "ABORTED"
        if isinstance(error, NotNumbers):
            # They would not be elsewhere either.
            dtype = str(self.state.engine.spec.dtype).removeprefix("torch.")
            message, code = f"{error}, in {dtype}; {REMEDY}", "INTERNAL"
        for row in pass_.rows_E.tolist():
            session = self.state.sessions[row]
            _log.error("a session failed", request_id=session.request_id, exc_info=error)
            self.state.fail(session, message, code=code)

    def _start_sessions(self) -> None:
        """Takes over what others have computed before a session's first rows, unless one of them is still at it."""
        table = self.state.table
        for row in (table.used_S & ~table.started_S).nonzero()[0].tolist():
            if self.state.slots.start(row):
                cached = self.state.engine.cached(row)
                table.cached_S[row] = cached
                table.reused_S[row] = min(cached, int(table.prompts_S[row]))
                table.started_S[row] = True
