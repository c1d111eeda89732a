"""The thread of a target: hands events to the core, runs its passes, sends its outputs. Knows nothing of Ray or gRPC.

One thread owns the core and calls `step` in a loop. Other threads only `post` events. While the model runs, which touches
no session, the owner is whoever posts candidates: they are in their pools by the time the next pass is planned. Outputs leave
through a callback, in order.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import structlog

from outrider.actors.engine.protocol import Engine
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    Event,
    Output,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.state.target_state import TargetState, random_handle
from outrider.actors.target.target_core import Computed, TargetCore, Wait
from outrider.actors.target.verify.drawing import NotNumbers
from outrider.actors.tracing.recorder import Recorder

MAX_FAILED_PASSES = 3
"""Passes in a row of which nothing came. One request may be at fault and ends with its pass; an engine that fails this often,
whatever it is asked, is broken, and only a restart of the actor mends it."""

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class EngineBroken(RuntimeError):
    """No pass succeeds any more."""


class WakeEvent:
    """Wakes the worker: set by any thread, waited for by one. Set again before it was waited for, it counts once.

    Setting it takes a third less than setting a `threading.Event` that is waited for.
    """

    def __init__(self) -> None:
        # Held while the event is not set.
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wakes who waits, or who waits next. Any thread."""
        if self._unset.locked():
            # Another thread may have set it since.
            with contextlib.suppress(RuntimeError):
                self._unset.release()

    def clear(self) -> None:
        """Forgets that it was set. The one thread that waits."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_s: float) -> bool:
        """Waits until it is set and clears it; False if that did not happen in time. The one thread that waits."""
        return self._unset.acquire(timeout=timeout_s)


class TargetWorker:
    """Everything a target actor does between its streams."""

    def __init__(
        self,
        engine: Engine,
        settings: TargetSettings,
        emit: Callable[[list[Output]], None],
        clock: Callable[[], float] = time.perf_counter,
        recorder: Recorder | None = None,
        new_handle: Callable[[], int] = random_handle,
    ) -> None:
        """Makes a worker.

        Args:
            engine: The target model.
            settings: What the actor was told.
            emit: Takes the outputs of a step, in order. Called by the worker's thread.
            clock: Seconds; monotone.
            recorder: Takes records for a timeline; None: nobody asks for them.
            new_handle: Names sessions to drafters.
        """
        self._clock = clock
        self._core = TargetCore(engine, settings, recorder, new_handle)
        self._emit = emit
        self._turn = threading.Lock()
        """Held by the worker's thread, and free while the model runs."""
        self._turn.acquire()
        self._inbox: deque[tuple[float, Event]] = deque()
        self._wake = WakeEvent()
        self._stopping = False
        self._failed_passes = 0
        self._runs_beside = engine.spec.runs_beside

    # -- other threads ---------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Hands in an event. Any thread."""
        # The time of arrival tells how fast drafters answer; a pass may lie between it and the taking in.
        self._inbox.append((self._clock(), event))
        self._wake.set()
        if self._turn.acquire(blocking=False):
            try:
                self._take_candidates()
            finally:
                self._turn.release()

    def stop(self) -> None:
        """Makes `run` return after the running pass. Any thread."""
        self._stopping = True
        self._wake.set()

    @property
    def num_waiting(self) -> int:
        """Number of events that were handed in and not taken yet. Any thread."""
        return len(self._inbox)

    @property
    def num_sessions(self) -> int:
        """Number of sessions. Any thread."""
        return len(self.state.sessions)

    @property
    def state(self) -> TargetState:
        """What the worker knows. Other threads may read single values and copy collections whole."""
        return self._core.state

    def take_busy(self) -> float:
        """Fraction of the time since the last call in which passes ran, 0 to 1."""
        return self._core.take_busy(self._clock())

    # -- the worker's thread ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Steps until `stop`.

        Raises:
            EngineBroken: Passes fail one after the other. This, like anything else raised here, must end the actor.
        """
        while not self._stopping:
            wait_s = self._round()
            if wait_s is None or wait_s > 0.0:
                self.state.recording.begin_wait()
                self._wake.wait(wait_s if wait_s is not None else 1.0)
                self.state.recording.end_wait()
        self._flush()

    def step(self) -> float | None:
        """Takes in the events that are there, then runs one pass if one is due, and sends what came of it.

        Returns:
            0 if more is to be done at once; otherwise the seconds after which to look again, None for not before
            there is an event.
        """
        wait_s = self._round()
        self._flush()
        return wait_s

    def _round(self) -> float | None:
        """A step that may leave it to the next one to send what came of it."""
        self._wake.clear()
        # What comes meanwhile waits for the next round: drafters that send faster than this takes in must not hold a pass up.
        for _ in range(len(self._inbox)):
            arrived, event = self._inbox.popleft()
            self._core.take(event, self._clock(), arrived)
        pass_ = self._core.begin(self._clock())
        # Sending takes the interpreter from this thread. While a pass runs, or is waited for, nobody misses it.
        if isinstance(pass_, Wait) or not self._runs_beside:
            self._flush()
        if isinstance(pass_, Wait):
            return pass_.seconds
        self._failed_passes = 0 if self._run(pass_) else self._failed_passes + 1
        if self._failed_passes >= MAX_FAILED_PASSES:
            raise EngineBroken(f"{self._failed_passes} passes failed in a row; the log says how")
        return 0.0

    def warm_up(self) -> None:
        """Runs passes of different sizes, so that the cost model knows the shape of their times."""
        self._core.warm_up(self._clock)

    def _run(self, pass_: Pass) -> bool:
        """Runs a pass, session by session if it raises. False: no model ran, so the engine may be broken."""
        try:
            self._conclude(pass_, self._compute(pass_))
        except _ModelError as raised:
            requests = [self.state.sessions[row].request_id for row in pass_.rows_E.tolist()]
            _log.error("target pass failed", request_ids=requests, exc_info=raised.cause)
        else:
            return True
        succeeded = False
        for alone in self._core.apart(pass_, self._clock()):
            try:
                self._conclude(alone, self._compute(alone))
                succeeded = True
            except _ModelError as raised:
                self._core.fail(alone, raised.cause)
                self._flush()
                # It ran, and a restart would give the same.
                succeeded |= isinstance(raised.cause, NotNumbers)
        return succeeded

    def _compute(self, pass_: Pass) -> Computed:
        read = self._model(lambda: self._core.launch(pass_))
        if self._runs_beside:
            self._flush()
        return self._model(read)

    def _model(self, call: Callable[[], T]) -> T:
        """Lets others take candidates in while the model runs. They are at it for a fraction of a millisecond, which is as long
        as this waits."""
        self._turn.release()
        try:
            return call()
        except Exception as error:
            raise _ModelError(error) from error
        finally:
            self._turn.acquire()

    def _conclude(self, pass_: Pass, computed: Computed) -> None:
        now = self._clock()
        is_awaited = self._core.finish(pass_, computed, now)
        if is_awaited:
            self._flush()
        self._core.tidy()
        if is_awaited:
            # Drafters of hidden states answer once they have those, too.
            self._flush()
        self._core.booked(
            pass_,
            model_s=now - pass_.began_s,
            now=self._clock(),
            is_usual=not computed.logits.recording_s,
        )

    def _flush(self) -> None:
        outputs = self._core.take_outputs()
        if outputs:
            self._emit(outputs)

    def _take_candidates(self) -> None:
        """Takes in the candidates that wait, up to the first event of another kind: those may end a session of the pass."""
        while self._inbox and isinstance(self._inbox[0][1], CandidatesReceived):
            arrived, event = self._inbox.popleft()
            self._core.take(event, self._clock(), arrived)


class _ModelError(Exception):
    """The model raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause
