"""The target worker: takes events in, plans a pass, runs it. Knows nothing of Ray or gRPC.

One thread owns everything here and calls `step` in a loop. Other threads only `post` events. While the model runs, which touches
no session, the owner is whoever posts candidates: they are in their pools by the time the next pass is planned. Outputs leave
through a callback, once a step, in order.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import structlog

from outrider.actors.engine.protocol import Engine
from outrider.actors.speculation.noise import GumbelNoise
from outrider.actors.target import admission, intake
from outrider.actors.target.acceptance import Calibration
from outrider.actors.target.accounts import Accounts
from outrider.actors.target.bell import Bell
from outrider.actors.target.board import Board, random_handle
from outrider.actors.target.control import Control
from outrider.actors.target.cost import CostModel
from outrider.actors.target.events import (
    Candidates,
    Close,
    CloseStream,
    DrafterJoined,
    DrafterLeft,
    Event,
    Failed,
    FrozenCandidates,
    Open,
    Opened,
    Output,
    ResyncRequest,
    Steer,
)
from outrider.actors.target.governor import Governor
from outrider.actors.target.passes import run_pass
from outrider.actors.target.plan import Limits, plan_pass
from outrider.actors.target.roots import plant
from outrider.actors.target.session import Session
from outrider.actors.target.settings import TargetSettings
from outrider.actors.target.warm_up import time_passes, time_prompt_row
from outrider.actors.trace import Recorder

MAX_FAILED_PASSES = 3
"""Passes in a row of which nothing came. One request may be at fault and ends with its pass; an engine that fails this often,
whatever it is asked, is broken, and only a restart of the actor mends it."""


_log = structlog.get_logger(__name__)


class EngineBroken(RuntimeError):
    """No pass succeeds any more."""


class TargetWorker:
    """Everything a target actor does between its streams."""

    def __init__(
        self,
        engine: Engine,
        settings: TargetSettings,
        emit: Callable[[list[Output]], None],
        clock: Callable[[], float] = time.perf_counter,
        recorder: Recorder | None = None,
        governor: Governor | None = None,
        new_handle: Callable[[], int] = random_handle,
    ) -> None:
        """Makes a worker.

        Args:
            engine: The target model.
            settings: What the actor was told.
            emit: Takes the outputs of a step, in order. Called by the worker's thread.
            clock: Seconds; monotone.
            recorder: Takes records for a timeline; None: nobody asks for them.
            governor: Decides whether to speculate, None: a new one. Not asked if the settings say so.
            new_handle: Names sessions to drafters.
        """
        self._clock = clock
        self._board = Board(engine, settings, emit, clock, recorder or Recorder(), new_handle)
        self._accounts = Accounts(self._board)
        self._noise = GumbelNoise(engine.spec.vocab_size, engine.spec.device)
        self._control = Control(self._board, governor or Governor())
        self._limits = Limits(
            prefill_chunk=settings.prefill_chunk,
            max_batch_nodes=settings.max_batch_nodes,
            max_patience_s=settings.max_patience_s,
            lockstep=settings.lockstep,
        )
        self._plain_limits = replace(self._limits, speculates=False)
        self._turn = threading.Lock()
        """Held by the worker's thread, and free while the model runs."""
        self._turn.acquire()
        self._inbox: deque[tuple[float, Event]] = deque()
        self._bell = Bell()
        self._stopping = False
        self._failed_passes = 0

    # -- other threads ---------------------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Hands in an event. Any thread."""
        # The time of arrival tells how fast drafters answer; a pass may lie between it and the taking in.
        self._inbox.append((self._clock(), event))
        self._bell.ring()
        if self._turn.acquire(blocking=False):
            try:
                self._take_candidates()
            finally:
                self._turn.release()

    def stop(self) -> None:
        """Makes `run` return after the running pass. Any thread."""
        self._stopping = True
        self._bell.ring()

    @property
    def num_sessions(self) -> int:
        """Number of sessions. Any thread."""
        return len(self._board.sessions)

    @property
    def cost(self) -> CostModel:
        """What passes cost."""
        return self._board.cost

    @property
    def board(self) -> Board:
        """What the worker knows. Other threads may read single values and copy collections whole."""
        return self._board

    def take_busy(self) -> float:
        """Fraction of the time since the last call in which passes ran, 0 to 1."""
        return self._accounts.take_busy()

    # -- the worker's thread ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Steps until `stop`.

        Raises:
            EngineBroken: Passes fail one after the other. This, like anything else raised here, must end the actor.
        """
        while not self._stopping:
            wait_s = self.step()
            if wait_s is None or wait_s > 0.0:
                self._board.recording.begin_wait(self._board.sessions.values())
                self._bell.wait(wait_s if wait_s is not None else 1.0)
                self._board.recording.end_wait()

    def step(self) -> float | None:
        """Takes in the events that are there, then runs one pass if one is due.

        Returns:
            0 if more is to be done at once; otherwise the seconds after which to look again, None for not before
            there is an event.
        """
        board = self._board
        self._bell.silence()
        self._take_all()
        # Drafters are attached and told what they lack while the next pass runs, not after it.
        board.flush()
        sessions = [s for s in board.sessions.values() if self._start(s)]
        if not sessions:
            self._control.pause()
            board.flush()
            return None
        now = self._clock()
        limits = self._limits if self._control.decide(sessions) else self._plain_limits
        cached = [board.engine.cached(s.slot) for s in sessions]
        plan = plan_pass(sessions, cached, board.live_drafters, limits, board.cost, now)
        if not plan.entries:
            for session in sessions:
                if session.wait_since is None:
                    session.wait_since = now
            board.flush()
            return plan.wait_s
        entries = plan.entries
        if limits.speculates:
            entries = plant(entries, max_nodes=limits.max_batch_nodes, cost=board.cost)
        outcome = run_pass(board, entries, now, self._running_model)
        self._failed_passes = 0 if outcome is not None else self._failed_passes + 1
        if self._failed_passes >= MAX_FAILED_PASSES:
            board.flush()
            raise EngineBroken(f"{self._failed_passes} passes failed in a row; the log says how")
        if outcome is not None:
            self._accounts.book(entries, outcome, now)
            self._control.observe(entries, outcome)
        board.flush()
        return 0.0

    def warm_up(self) -> None:
        """Runs passes of different sizes, so that the cost model knows the shape of their times."""
        engine, cost = self._board.engine, self._board.cost
        cost.set_curve(time_passes(engine, self._clock))
        chunk = self._board.settings.prefill_chunk
        cost.set_prompt_row(time_prompt_row(engine, self._clock, chunk))

    @contextmanager
    def _running_model(self) -> Iterator[None]:
        """Lets others take candidates in. They are at it for a fraction of a millisecond, which is as long as this waits."""
        self._turn.release()
        try:
            yield
        finally:
            self._turn.acquire()

    def _take_candidates(self) -> None:
        """Takes in the candidates that wait, up to the first event of another kind: those may end a session of the pass."""
        while self._inbox and isinstance(self._inbox[0][1], Candidates | FrozenCandidates):
            arrived, event = self._inbox.popleft()
            self._take(event, arrived)

    def _take_all(self) -> None:
        while self._inbox:
            arrived, event = self._inbox.popleft()
            self._take(event, arrived)

    def _take(self, event: Event, arrived: float) -> None:
        board = self._board
        match event:
            case Candidates():
                intake.graft(board, event, arrived)
            case FrozenCandidates():
                intake.hold(board, event, arrived)
            case Open():
                self._open(event)
            case Close():
                board.abort(event.owner, is_told=True)
            case CloseStream():
                for owner in [o for o in board.handles if o.stream == event.stream]:
                    board.abort(owner, is_told=False)
            case Steer():
                intake.steer(board, event)
            case DrafterJoined():
                board.live_drafters |= {event.drafter}
                board.calibrations.setdefault(event.drafter, Calibration())
            case DrafterLeft():
                board.live_drafters -= {event.drafter}
                for session in board.sessions.values():
                    session.joined.discard(event.drafter)
                    session.seen.pop(event.drafter, None)
            case ResyncRequest():
                intake.answer_resync(board, event)

    def _open(self, event: Open) -> None:
        board = self._board
        try:
            session = admission.open_session(
                event, board.engine, board.slots, self._noise, handle=board.next_handle()
            )
        except admission.Refused as refusal:
            board.say(Failed(owner=event.owner, code=refusal.code, message=str(refusal)))
            _log.info("session refused", request_id=event.request_id, reason=str(refusal))
            return
        board.add(session)
        board.say(Opened(owner=event.owner, handle=session.handle))
        _log.debug("session opened", request_id=session.request_id, prompt_tokens=session.length)

    def _start(self, session: Session) -> bool:
        """Takes over what others have computed before a session's first rows; False while one of them is at it."""
        if session.is_started:
            return True
        board = self._board
        if not board.slots.start(session.slot):
            return False
        session.stats.cached_tokens = min(board.engine.cached(session.slot), session.prompt_length)
        session.is_started = True
        return True
