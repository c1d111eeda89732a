"""A drafter: commands and verdicts in, the core's events; its reports out; passes that keep its device busy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import grpc

from outrider.actors.draft.draft_core import DraftCore
from outrider.actors.draft.service.draft_messages import (
    attach_from_proto,
    event_from_proto,
    message_of,
)
from outrider.actors.draft.state.draft_events import (
    Attached,
    AttachRefused,
    CandidatesSent,
    Detach,
    Ended,
    LinkLost,
    ResyncWanted,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.engine.protocol import Logits
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.policies import LengthChoice
from outrider.cluster.simulate.heap import EventRecord, Heap
from outrider.cluster.simulate.network import SimulatedStream
from outrider.cluster.simulate.prices import Prices, Step
from outrider.cluster.simulate.simulated_device import SimulatedDevice
from outrider.cluster.simulate.simulated_process import Machine, Process
from outrider.v1 import draft_pb2, target_pb2


class DraftProcess(Process):
    """Runs a drafter's core."""

    def __init__(
        self,
        name: str,
        heap: Heap,
        machine: Machine,
        record: EventRecord,
        *,
        device: SimulatedDevice,
        new_core: Callable[[], DraftCore],
        prices: Prices,
        passes_on: Machine | None,
    ) -> None:
        """Arguments: as `TargetProcess`."""
        super().__init__(name, heap, machine, record, prices)
        self.device = device
        self.core = new_core()
        self.coordinator: SimulatedStream | None = None
        self.links: dict[int, SimulatedStream] = {}
        """Streams to targets, by number. A stream that broke has another number afterwards."""
        self.link_of: dict[str, int] = {}
        """By the target's name."""
        self._owners: dict[SessionKey, int] = {}
        """The coordinator's number of each session."""
        self._keys: dict[int, SessionKey] = {}
        self._passes_on = passes_on or Machine(None)
        self._pass: DraftPass | None = None
        self._logits: Logits | None = None
        self.pass_ends = self._arrived = 0.0

    # -- what comes in ---------------------------------------------------------------------------------------------

    def on_command(self, payload: bytes) -> None:
        """A coordinator's command."""
        command = draft_pb2.DraftCommand.FromString(payload)
        if command.WhichOneof("command") == "detach":
            key = self._keys.pop(command.detach.session, None)
            if key is not None:
                self._owners.pop(key, None)
                self.core.take(Detach(key=key), self.now)
            return
        attach = command.attach
        number = self.link_of.get(attach.target_address)
        if number is None or not self.links[number].is_open:
            self._refuse(attach.session, grpc.StatusCode.UNAVAILABLE, "no stream to the target")
            return
        key = SessionKey(number, attach.handle)
        event = attach_from_proto(attach, key, VERIFIERS, (LengthChoice.FULL,))
        self._owners[key], self._keys[attach.session] = attach.session, key
        self.core.take(replace(event, **self._known_of(number)), self.now)

    def _known_of(self, number: int) -> Mapping[str, Any]:
        """What shaking hands told about a target."""
        return {
            "round_trip_s": 2.0 * self.links[number].way.latency_s,
            "vocab_size": self.device.spec.vocab_size,
        }

    def on_target(self, link: int, payload: bytes) -> None:
        """A target's message."""
        if link not in self.links:
            return
        event = event_from_proto(target_pb2.VerdictMessage.FromString(payload), link)
        if isinstance(event, VerdictsReceived):
            told = event.verdicts
            self.spend(self._prices.drafter.take.seconds(len(told.handles_E), len(told.tokens_T)))
        if event is not None:
            self.core.take(event, self.now, self._arrived)

    def lost_target(self, link: int) -> None:
        """The stream to a target has ended."""
        self.links.pop(link, None)
        self.post(b"", lambda _: self._forget(link))

    def _forget(self, link: int) -> None:
        self.core.take(LinkLost(link=link), self.now)
        for key in [key for key in self._owners if key.link == link]:
            self._detached(key, "the stream to the target ended")

    # -- turns -----------------------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """See `Process`. What arrives during a pass waits for its end, as in `DraftWorker`."""
        if self._pass is not None:
            if self.now < self.pass_ends:
                return self.pass_ends
            self._conclude(self._pass)
            return self.now
        while self.inbox:
            letter = self.inbox.popleft()
            if letter.payload:
                self.spend_on_message()
            self._arrived = letter.arrived
            letter.take(letter.payload)
        begun = self.core.begin(self.now)
        if begun is None:
            self._send()
            return None
        self.spend(self._price_of(begun, self._prices.drafter.begin))
        self._send()
        began_s = self.device.pass_s
        self._logits = None if begun.batch is None else self.device.forward(begun.batch)
        model_s = self.device.pass_s - began_s
        self._pass = begun
        self.pass_ends = self._passes_on.run(self.now, model_s)
        return self.pass_ends

    def _conclude(self, done: DraftPass) -> None:
        self._pass = None
        self.spend(self._price_of(done, self._prices.drafter.finish))
        self.core.finish(done, self._logits)
        self._send()

    @staticmethod
    def _price_of(draft: DraftPass, step: Step) -> float:
        rows = 0 if draft.batch is None else draft.batch.num_rows
        return step.seconds(len(draft.rows_E), rows)

    def _send(self) -> None:
        for report in self.core.take_reports():
            match report:
                case CandidatesSent():
                    self._tell_target(report.link, message_of(report))
                case ResyncWanted():
                    self._tell_target(report.key.link, message_of(report))
                case Attached():
                    session = self._owners.get(report.key)
                    if session is not None:
                        attached = draft_pb2.SessionAttached(session=session)
                        self._tell_coordinator(draft_pb2.DraftEvent(attached=attached))
                case AttachRefused():
                    session = self._disown(report.key)
                    if session is not None:
                        self._refuse(session, report.code, report.message)
                case Ended():
                    self._detached(report.key, report.message)

    def _disown(self, key: SessionKey) -> int | None:
        session = self._owners.pop(key, None)
        if session is not None:
            self._keys.pop(session, None)
        return session

    def _detached(self, key: SessionKey, message: str) -> None:
        session = self._disown(key)
        if session is not None:
            detached = draft_pb2.SessionDetached(session=session, message=message)
            self._tell_coordinator(draft_pb2.DraftEvent(detached=detached))

    def _refuse(self, session: int, code: grpc.StatusCode, message: str) -> None:
        number: int = code.value[0]
        refused = draft_pb2.AttachRefused(session=session, code=number, message=message)
        self._tell_coordinator(draft_pb2.DraftEvent(refused=refused))

    def _tell_target(self, link: int, message: target_pb2.DrafterMessage) -> None:
        if link in self.links:
            self.links[link].tell(self, message)

    def _tell_coordinator(self, event: draft_pb2.DraftEvent) -> None:
        if self.coordinator is not None:
            self.coordinator.tell(self, event)
