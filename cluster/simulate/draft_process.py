"""A drafter: commands and verdicts in, the core's events; its reports out; passes that keep its device busy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import grpc

from outrider.actors.draft.events import (
    Attached,
    Detach,
    Ended,
    LinkLost,
    Refused,
    ResyncWanted,
    SessionKey,
)
from outrider.actors.draft.messages import SERVED, attach_from_proto, events_from_proto, resync_to_proto
from outrider.actors.draft.sampled import SERVED_SAMPLED
from outrider.actors.exchange import candidates, verdicts
from outrider.cluster.simulate.device import Device
from outrider.cluster.simulate.former import DraftCore, LinkCandidates, LinkVerdicts, Pass
from outrider.cluster.simulate.heap import Heap, Record
from outrider.cluster.simulate.network import Stream
from outrider.cluster.simulate.prices import Prices
from outrider.cluster.simulate.process import Machine, Process
from outrider.v1 import draft_pb2, target_pb2


class DraftProcess(Process):
    """Runs a drafter's core."""

    def __init__(
        self,
        name: str,
        heap: Heap,
        machine: Machine,
        record: Record,
        *,
        device: Device,
        new_core: Callable[[], DraftCore],
        prices: Prices,
        on_core: bool = False,
    ) -> None:
        """Arguments: as `TargetProcess`."""
        super().__init__(name, heap, machine, record)
        self.device = device
        self.core = new_core()
        self.coordinator: Stream | None = None
        self.coordinator_takes: Callable[[bytes], None] = lambda payload: None
        self.links: dict[int, Stream] = {}
        """Streams to targets, by number. A stream that broke has another number afterwards."""
        self.link_of: dict[str, int] = {}
        """By the target's name."""
        self.target_takes: dict[int, Callable[[bytes], None]] = {}
        self.num_nodes_sent = 0
        self._owners: dict[SessionKey, int] = {}
        """The coordinator's number of each session."""
        self._keys: dict[int, SessionKey] = {}
        self._prices = prices
        self._on_core = on_core
        self._pass: Pass | None = None
        self._ends = 0.0

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
        event = attach_from_proto(attach, key, (*SERVED, *SERVED_SAMPLED))
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
        message = target_pb2.VerdictMessage.FromString(payload)
        if message.WhichOneof("message") == "verdicts":
            frame = verdicts.decode(message.verdicts.frame)
            self.spend(self._prices.drafter.take.seconds(len(frame.handles_E), len(frame.tokens_T)))
            self.core.take(LinkVerdicts(link=link, verdicts=frame), self.now)
            return
        for event in events_from_proto(message, link):
            self.core.take(event, self.now)

    def lost_target(self, link: int) -> None:
        """The stream to a target has ended."""
        self.links.pop(link, None)
        self.post(b"", lambda _: self._forget(link))

    def lost_coordinator(self) -> None:
        """The coordinator's stream has ended: its sessions go."""
        self.post(b"", lambda _: self._detach_all())

    def _detach_all(self) -> None:
        for key in list(self._owners):
            self.core.take(Detach(key=key), self.now)
        self._owners.clear()
        self._keys.clear()

    def _forget(self, link: int) -> None:
        self.core.take(LinkLost(link=link), self.now)
        for key in [key for key in self._owners if key.link == link]:
            self._detached(key, "the stream to the target ended")

    # -- turns -----------------------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """See `Process`."""
        while self.inbox:
            letter = self.inbox.popleft()
            if letter.payload:
                self.spend(self._prices.message.seconds())
            letter.take(letter.payload)
        if self._pass is not None:
            self._send()
            if self.now < self._ends:
                due_s = self.core.due_s(self.now)
                return self._ends if due_s is None else min(self._ends, self.now + due_s)
            done, self._pass = self._pass, None
            rows = sum(len(one.tokens) for one in done.batch)
            self.spend(self._prices.drafter.finish.seconds(len(done.batch), rows))
            self.core.finish(done, self.now)
            self._send()
            return self.now
        begun = self.core.begin(self.now)
        if begun is None:
            self._send()
            due_s = self.core.due_s(self.now)
            return None if due_s is None else self.now + due_s
        rows = sum(len(one.tokens) for one in begun.batch)
        self.spend(self._prices.drafter.begin.seconds(len(begun.batch), rows))
        self._send()
        self._pass = begun
        if self._on_core:
            self._ends = self.machine.run(self.now, begun.seconds)
        else:
            self._ends = self.now + begun.seconds
        return self._ends

    def _send(self) -> None:
        for report in self.core.take_reports(self.now):
            match report:
                case LinkCandidates():
                    message = target_pb2.DrafterMessage()
                    message.candidates.frame = candidates.encode(report.candidates)
                    self.num_nodes_sent += report.candidates.num_nodes
                    self._tell_target(report.link, message)
                case ResyncWanted():
                    self._tell_target(report.key.link, resync_to_proto(report))
                case Attached():
                    session = self._owners.get(report.key)
                    if session is not None:
                        attached = draft_pb2.SessionAttached(session=session)
                        self._tell_coordinator(draft_pb2.DraftEvent(attached=attached))
                case Refused():
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
        stream = self.links.get(link)
        if stream is not None and stream.is_open:
            self.spend(self._prices.message.seconds())
            stream.send(self, message.SerializeToString(), self.target_takes[link])

    def _tell_coordinator(self, event: draft_pb2.DraftEvent) -> None:
        if self.coordinator is not None and self.coordinator.is_open:
            self.spend(self._prices.message.seconds())
            self.coordinator.send(self, event.SerializeToString(), self.coordinator_takes)
