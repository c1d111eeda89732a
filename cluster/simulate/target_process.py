"""A target: streams in, the core's events; the core's outputs, streams out; passes that keep its device busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.actors.target.core import Computed, TargetCore, Wait
from outrider.actors.target.events import (
    CommitFrame,
    Committed,
    Close,
    CloseStream,
    DrafterJoined,
    DrafterLeft,
    DraftersWanted,
    Failed,
    Finished,
    Opened,
    Owner,
    Resync,
    ResyncRequest,
    SessionClosed,
    Steer,
    VerdictFrame,
)
from outrider.actors.target.messages import (
    drafter_message,
    drafters_wanted,
    open_from_proto,
    session_event,
)
from outrider.cluster.simulate.device import Device
from outrider.cluster.simulate.heap import Heap, Record
from outrider.cluster.simulate.network import Stream
from outrider.cluster.simulate.prices import Prices
from outrider.cluster.simulate.process import Machine, Process
from outrider.v1 import target_pb2

STREAM = 1
"""Number of the coordinator's stream."""


@dataclass(slots=True)
class PassLog:
    """What a target did, pass by pass."""

    ends_s: list[float] = field(default_factory=list)
    """When each was over, its verdicts sent."""
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
        record: Record,
        *,
        device: Device,
        new_core: Callable[[], TargetCore],
        prices: Prices,
        on_core: bool = False,
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
            on_core: Passes take one of the machine's cores.
        """
        super().__init__(name, heap, machine, record)
        self.device = device
        self.core = new_core()
        self.log = PassLog()
        self.coordinator: Stream | None = None
        self.drafters: dict[str, Stream] = {}
        self.coordinator_takes: Callable[[bytes], None] = lambda payload: None
        self.drafter_takes: dict[str, Callable[[bytes], None]] = {}
        self._prices = prices
        self._on_core = on_core
        self._pass: Pass | None = None
        self._computed: Computed = None
        self._began = self._ends = self._model_s = 0.0
        self._committed = 0

    # -- what comes in ---------------------------------------------------------------------------------------------

    def on_command(self, payload: bytes) -> None:
        """A coordinator's command."""
        command = target_pb2.SessionCommand.FromString(payload)
        match command.WhichOneof("command"):
            case "open":
                self.core.take(open_from_proto(command.open, STREAM), self.now)
            case "close":
                self.core.take(Close(owner=Owner(stream=STREAM, session=command.close.session)), self.now)
            case "steer":
                steer = command.steer
                self.core.take(
                    Steer(
                        owner=Owner(stream=STREAM, session=steer.session),
                        drafters=tuple(steer.drafters),
                        max_nodes=steer.max_nodes,
                    ),
                    self.now,
                )

    def on_drafter(self, drafter: str, payload: bytes) -> None:
        """A drafter's message."""
        message = target_pb2.DrafterMessage.FromString(payload)
        if message.WhichOneof("message") == "resync":
            resync = message.resync
            event = ResyncRequest(drafter=drafter, handle=resync.handle, length=resync.length)
            self.core.take(event, self.now)
            return
        frame = candidates.decode(message.candidates.frame, self.device.spec.vocab_size)
        self.spend(self._prices.target.take.seconds(len(frame.handles_E), frame.num_nodes))
        self.core.take(CandidateFrame(drafter=drafter, candidates=frame), self.now)

    def joined(self, drafter: str) -> None:
        """A drafter's stream is up."""
        self.post(b"", lambda _: self.core.take(DrafterJoined(drafter=drafter), self.now))

    def left(self, drafter: str) -> None:
        """A drafter's stream has ended."""
        self.post(b"", lambda _: self.core.take(DrafterLeft(drafter=drafter), self.now))

    def lost_coordinator(self) -> None:
        """The coordinator's stream has ended."""
        self.post(b"", lambda _: self.core.take(CloseStream(stream=STREAM), self.now))

    # -- turns -----------------------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """See `Process`."""
        while self.inbox:
            letter = self.inbox.popleft()
            if letter.payload:
                self.spend(self._prices.message.seconds())
            letter.take(letter.payload)
        self._send()
        if self._pass is not None:
            if self.now < self._ends:
                return self._ends
            self._finish(self._pass, self._computed)
            return self.now
        decided = self.core.begin(self.now)
        if not isinstance(decided, Pass):
            self._send()
            return None if decided.seconds is None else self.now + max(decided.seconds, 0.0)
        batch = decided.batch
        self.spend(self._prices.target.begin.seconds(len(batch), batch.num_rows))
        self._send()
        began_s = self.device.pass_s
        self._computed = self.core.run(decided)
        self._model_s = self.device.pass_s - began_s
        self._pass, self._began = decided, self.now
        if self._on_core:
            self._ends = self.machine.run(self.now, self._model_s)
        else:
            self._ends = self.now + self._model_s
        return self._ends

    def _finish(self, pass_: Pass, computed: Computed) -> None:
        self._pass = self._computed = None
        sessions, rows = len(pass_.batch), pass_.batch.num_rows
        ended = self.now
        self.core.finish(pass_, computed, ended)
        self.spend(self._prices.target.finish.seconds(sessions, rows))
        self._committed = 0
        self._send()
        self.core.tidy()
        self.core.booked(pass_, model_s=ended - self._began, now=self.now)
        self._send()
        log = self.log
        log.ends_s.append(self.now)
        log.sessions.append(sessions)
        log.rows.append(rows)
        log.tokens.append(self._committed)
        log.seconds.append(self._model_s)

    def _send(self) -> None:
        for output in self.core.take_outputs():
            match output:
                case VerdictFrame():
                    message = target_pb2.VerdictMessage()
                    message.verdicts.frame = verdicts.encode(output.verdicts)
                    self._tell_drafter(output.drafter, message)
                case Resync() | SessionClosed():
                    self._tell_drafter(output.drafter, drafter_message(output))
                case CommitFrame():
                    self._committed += len(output.commits.tokens_T)
                    event = target_pb2.SessionEvent()
                    event.commits.frame = commits.encode(output.commits)
                    self._tell_coordinator(event)
                case Opened() | Finished() | Failed():
                    self._tell_coordinator(session_event(output))
                case DraftersWanted():
                    self._tell_coordinator(drafters_wanted(output.is_wanted))

    def _tell_drafter(self, drafter: str, message: target_pb2.VerdictMessage) -> None:
        stream = self.drafters.get(drafter)
        if stream is not None and stream.is_open:
            self.spend(self._prices.message.seconds())
            stream.send(self, message.SerializeToString(), self.drafter_takes[drafter])

    def _tell_coordinator(self, event: target_pb2.SessionEvent) -> None:
        if self.coordinator is not None and self.coordinator.is_open:
            self.spend(self._prices.message.seconds())
            self.coordinator.send(self, event.SerializeToString(), self.coordinator_takes)
