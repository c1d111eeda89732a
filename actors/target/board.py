"""What all parts of a target worker share: sessions by handle and by owner, drafters, and what is to be told.

Owned by the worker's thread.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable

import structlog

from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine
from outrider.actors.target.acceptance import Calibration
from outrider.actors.target.cost import CostModel
from outrider.actors.target.device_drawing import draws_of
from outrider.actors.target.events import (
    DraftersWanted,
    Failed,
    Finish,
    Finished,
    Output,
    Owner,
    Resync,
    SessionClosed,
)
from outrider.actors.target.recording import TargetRecording
from outrider.actors.target.roots import RootTable
from outrider.actors.target.session import POOL_CAPACITY, Session
from outrider.actors.target.settings import TargetSettings
from outrider.actors.target.tally import Tally
from outrider.actors.trace import Recorder

_log = structlog.get_logger(__name__)

AHEAD = 16.0
"""Nodes that a drafter may have below the base for each that a pass takes on average. A single stream takes eight or nine and loses
tokens with fewer than 128; with many sessions, which get one or two each, drafting for more takes the processor from passes."""

LEAST_CREDITS = 8
"""Nodes that a drafter may have in any case, so that a pass finds the best of some when there is room again."""


HANDLE_BITS = 48
"""Of a session's handle: nobody guesses one, and it takes seven bytes on the wire."""


def random_handle() -> int:
    """A handle that tells nothing and cannot be guessed."""
    return secrets.randbits(HANDLE_BITS)


class Board:
    """The sessions of a target, and the outputs of the running step."""

    def __init__(
        self,
        engine: Engine,
        settings: TargetSettings,
        emit: Callable[[list[Output]], None],
        clock: Callable[[], float],
        recorder: Recorder,
        new_handle: Callable[[], int],
    ) -> None:
        """As `TargetWorker`."""
        self.engine = engine
        self.slots = PrefixSlots(engine, is_shared=settings.prefix_reuse)
        self.settings = settings
        self.clock = clock
        self.sessions: dict[int, Session] = {}
        self.handles: dict[Owner, int] = {}
        self.live_drafters: frozenset[str] = frozenset()
        """Drafters whose stream is up."""
        self.calibrations: dict[str, Calibration] = {}
        """By drafter; kept when a drafter leaves, for it comes back the same."""
        self.roots = RootTable()
        """What the target last thought after each token, for sessions whose trees begin with that."""
        self.cost = CostModel()
        self.is_resting = False
        """Drafters are told to rest: the target decodes plainly for now."""
        self.draws = draws_of(engine, settings)
        self.recording = TargetRecording(recorder)
        """For a timeline."""
        self.tally = Tally()
        self._emit = emit
        self._new_handle = new_handle
        self._outputs: list[Output] = []

    def say(self, output: Output) -> None:
        """Queues an output; `flush` sends it."""
        self._outputs.append(output)

    def flush(self) -> None:
        """Sends what is queued."""
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            self._emit(outputs)

    def next_handle(self) -> int:
        """A handle that no session has."""
        while (handle := self._new_handle()) in self.sessions:
            continue
        return handle

    def add(self, session: Session) -> None:
        """Takes a new session in."""
        self.sessions[session.handle] = session
        self.handles[session.owner] = session.handle

    def of(self, owner: Owner) -> Session | None:
        """The session of an owner, if it is still there."""
        handle = self.handles.get(owner)
        return None if handle is None else self.sessions[handle]

    def abort(self, owner: Owner, *, is_told: bool) -> None:
        """Ends a session; its owner is told what speculation did, for the statistics of a stop string."""
        session = self.of(owner)
        if session is not None:
            if is_told:
                self.say(Finished(owner=owner, reason=Finish.ABORTED, stats=session.stats))
            self.drop(session)

    def fail(self, session: Session, message: str) -> None:
        """Ends a session that cannot go on here; its coordinator opens it again, elsewhere if it can. What is in its slot may
        be why, so nobody gets that."""
        self.say(Failed(owner=session.owner, code="ABORTED", message=message))
        self.drop(session, keeps=False)

    def drop(self, session: Session, *, keeps: bool = True) -> None:
        """Frees the slot, whose rows others may use if it `keeps` them, and tells the drafters."""
        with self.tally.lock:
            self.tally.end(session)
            del self.sessions[session.handle]
        del self.handles[session.owner]
        self.slots.release(session.slot, session.tokens if keeps else ())
        _log.debug(
            "session ended",
            request_id=session.request_id,
            tokens=session.stats.tokens,
            accepted=session.stats.accepted,
        )
        for drafter in session.joined:
            self.say(SessionClosed(drafter=drafter, handle=session.handle))

    def join(self, session: Session, drafter: str, length: int) -> None:
        """Notes that a drafter takes part; tells it what it lacks beyond `length` tokens."""
        if drafter in session.joined or drafter not in session.allowed:
            return
        session.joined.add(drafter)
        if length < session.length:
            self.resync(session, drafter, length)

    def resync(self, session: Session, drafter: str, length: int) -> None:
        """Tells a drafter the committed tokens from `length` on."""
        self.say(
            Resync(
                drafter=drafter,
                handle=session.handle,
                epoch=session.epoch,
                base_length=session.length,
                base_hash=session.hash,
                tokens=tuple(session.tokens[length:]),
                credits=self.credits_of(session),
            )
        )

    def credits_of(self, session: Session) -> int:
        """How many nodes a drafter may be ahead of the verdicts: as many times as the passes take, at the present load."""
        if self.is_resting or session.remaining <= 1:
            return 0
        most = min(8 * session.speculation.max_nodes, POOL_CAPACITY)
        return max(min(math.ceil(AHEAD * session.taken), most), min(LEAST_CREDITS, most))

    def rest(self, *, is_resting: bool) -> None:
        """Sends the drafters to rest, with the next verdicts, or wakes them with what they missed. Coordinators attach none to
        sessions that open meanwhile."""
        if is_resting == self.is_resting:
            return
        self.is_resting = is_resting
        self.say(DraftersWanted(is_wanted=not is_resting))
        if is_resting:
            return
        for session in self.sessions.values():
            if session.rested_from is not None:
                for drafter in session.joined & self.live_drafters:
                    self.resync(session, drafter, session.rested_from)
                session.rested_from = None
