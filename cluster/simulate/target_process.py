"""A target: streams in, the core's events; the core's outputs, streams out; passes that keep its device busy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.actors.exchange.session_drafters import places_from_proto
from outrider.actors.target.service.target_messages import (
    candidates_from_proto,
    commit_message,
    drafter_message,
    drafters_wanted,
    frozen_from_proto,
    open_from_proto,
    session_event,
    verdict_message,
)
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    CloseSession,
    CommitFrame,
    DrafterJoined,
    DrafterLeft,
    DraftersWanted,
    Event,
    FeedbackReady,
    Resync,
    ResyncRequest,
    SessionClosed,
    SessionOwner,
    Steer,
    VerdictsSent,
)
from outrider.actors.target.target_core import Computed, TargetCore, Wait
from outrider.cluster.simulate.heap import EventRecord, Heap
from outrider.cluster.simulate.network import SimulatedStream
from outrider.cluster.simulate.prices import Prices
from outrider.cluster.simulate.simulated_device import SimulatedDevice
from outrider.cluster.simulate.simulated_process import Machine, Process
from outrider.v1 import target_pb2

TICK_S = 1e-6
"""Shortest wait and shortest pass, in seconds: no timer is finer, and one that rounding swallows would stop the clock."""

STREAM = 1
"""Number of the coordinator's stream."""


@dataclass(slots=True)
class PassLog:
    """What a target did, pass by pass."""

    ends_s: list[float] = field(default_factory=list)
    """When each was over, and booked."""
    sessions: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """Committed."""
    seconds: list[float] = field(default_factory=list)
    """Of the device."""


class TargetProcess(Process):
    """Runs a target's core."""

    def __init__(
        self,
        name: str,
        heap: Heap,
        machine: Machine,
        record: EventRecord,
        *,
        device: SimulatedDevice,
        new_core: Callable[[], TargetCore],
        prices: Prices,
        passes_on: Machine | None,
    ) -> None:
        """
        Args:
            name: Of the actor.
            heap: The clock.
            machine: Where it runs.
            record: Takes what happens.
            device: The model.
            new_core: Makes the core.
            prices: What its steps cost.
            passes_on: Passes take one of its cores; None: they wait for nobody's.
        """
        super().__init__(name, heap, machine, record, prices)
        self.device = device
        self.core = new_core()
        self.log = PassLog()
        self.coordinator: SimulatedStream | None = None
        self.drafters: dict[str, SimulatedStream] = {}
        self._passes_on = passes_on or Machine(None)
        self._pass: Pass | None = None
        self._computed: Computed | None = None
        self._events: deque[tuple[float, Event]] = deque()
        self._arrived = 0.0
        self._began = self.pass_ends = self._model_s = 0.0

    # -- what comes in ---------------------------------------------------------------------------------------------

    def on_command(self, payload: bytes) -> None:
        """A coordinator's command."""
        command = target_pb2.SessionCommand.FromString(payload)
        match command.WhichOneof("command"):
            case "open":
                self._note(open_from_proto(command.open, STREAM))
            case "close":
                self._note(
                    CloseSession(owner=SessionOwner(stream=STREAM, session=command.close.session))
                )
            case "steer":
                steer = command.steer
                owner = SessionOwner(stream=STREAM, session=steer.session)
                drafters = places_from_proto(steer.drafters)
                self._note(Steer(owner=owner, drafters=drafters))

    def on_drafter(self, drafter: str, payload: bytes) -> None:
        """A drafter's message."""
        message = target_pb2.DrafterMessage.FromString(payload)
        if message.WhichOneof("message") == "resync":
            resync = message.resync
            length = resync.length
            self._note(ResyncRequest(drafter=drafter, handle=resync.handle, length=length))
            return
        vocab_size = self.device.spec.vocab_size
        frame = candidates_from_proto(message.candidates, drafter, vocab_size)
        if frame is not None:
            of = frame.candidates
            self.spend(self._prices.target.take.seconds(len(of.handles_E), of.num_nodes))
            self._note(frame)
        for frozen in frozen_from_proto(message.candidates, drafter, vocab_size):
            found = frozen.candidates
            self.spend(self._prices.target.take.seconds(len(found.handles_E), found.num_nodes))
            self._note(frozen)

    def joined(self, drafter: str, *, takes_turns: bool) -> None:
        """A drafter's stream is up."""
        event = DrafterJoined(drafter=drafter, takes_turns=takes_turns)
        self.post(b"", lambda _: self._note(event))

    def left(self, drafter: str) -> None:
        """A drafter's stream has ended."""
        self.post(b"", lambda _: self._note(DrafterLeft(drafter=drafter)))

    def _note(self, event: Event) -> None:
        self._events.append((self._arrived, event))

    # -- turns -----------------------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """See `Process`. As `TargetWorker`: while a pass runs candidates are taken in, up to the first event of another kind."""
        while self.inbox:
            letter = self.inbox.popleft()
            if letter.payload:
                self.spend_on_message()
            self._arrived = letter.arrived
            letter.take(letter.payload)
        while self._events:
            arrived, event = self._events[0]
            if self._pass is not None and not isinstance(event, CandidatesReceived):
                break
            self._events.popleft()
            self.core.take(event, self.now, arrived)
        if self._pass is not None and self._computed is not None:
            if self.now < self.pass_ends:
                return self.pass_ends
            self._finish(self._pass, self._computed)
            return self.now
        decided = self.core.begin(self.now)
        if isinstance(decided, Wait):
            self._send()
            return None if decided.seconds is None else self.now + max(decided.seconds, TICK_S)
        batch = decided.batch
        self.spend(self._prices.target.begin.seconds(len(batch), batch.num_rows))
        began_s = self.device.pass_s
        self._computed = self.core.launch(decided)()
        self._model_s = self.device.pass_s - began_s
        self._pass, self._began = decided, self.now
        self.pass_ends = self._passes_on.run(self.now, max(self._model_s, TICK_S))
        # What was committed is told while the pass runs.
        self._send()
        return self.pass_ends

    def _finish(self, pass_: Pass, computed: Computed) -> None:
        self._pass = self._computed = None
        sessions, rows = len(pass_.batch), pass_.batch.num_rows
        ended = self.now
        log = self.log
        log.sessions.append(sessions)
        log.rows.append(rows)
        log.tokens.append(0)
        log.seconds.append(self._model_s)
        is_awaited = self.core.finish(pass_, computed, ended)
        self.spend(self._prices.target.finish.seconds(sessions, rows))
        if is_awaited:
            self._send()
        self.core.tidy()
        if is_awaited:
            self._send()
        self.core.booked(pass_, model_s=ended - self._began, now=self.now)
        log.ends_s.append(self.now)

    def _send(self) -> None:
        for output in self.core.take_outputs():
            match output:
                case VerdictsSent():
                    self._tell_drafter(output.drafter, verdict_message(output))
                case Resync() | SessionClosed():
                    self._tell_drafter(output.drafter, drafter_message(output))
                case CommitFrame():
                    self.log.tokens[-1] += len(output.commits.tokens_T)
                    self._tell_coordinator(commit_message(output))
                case DraftersWanted():
                    self._tell_coordinator(drafters_wanted(output.is_wanted))
                case FeedbackReady():
                    raise AssertionError("in virtual time nobody asks for features")
                case _:
                    self._tell_coordinator(session_event(output))

    def _tell_drafter(self, drafter: str, message: target_pb2.VerdictMessage) -> None:
        if drafter in self.drafters:
            self.drafters[drafter].tell(self, message)

    def _tell_coordinator(self, event: target_pb2.SessionEvent) -> None:
        if self.coordinator is not None:
            self.coordinator.tell(self, event)
