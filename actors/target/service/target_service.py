"""`TargetService`: streams in, events to the worker; outputs of the worker, streams out.

Everything here runs on the event loop. Each stream has one bounded outbox; a peer that does not read is cut off
when it is full, because holding back the others for it would be worse.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog

from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.engine.turn_taking import compute_device
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.exchange.session_drafters import places_from_proto
from outrider.actors.exchange.verifier_wire import offer_of
from outrider.actors.exchange.vocabulary import Vocabulary
from outrider.actors.process.seldom_log import SeldomLog
from outrider.actors.rpc.hello import PeerIncarnations, take_hello
from outrider.actors.rpc.outbox import Outbox
from outrider.actors.rpc.pump import pump
from outrider.actors.target.opening import OFFERED
from outrider.actors.target.service.feedback_streams import FeedbackStreams
from outrider.actors.target.service.handshake import drafter_misfit
from outrider.actors.target.service.slot_shares import Shares
from outrider.actors.target.service.target_messages import (
    candidates_from_proto,
    commit_message,
    drafter_counts,
    drafter_message,
    drafters_wanted,
    frozen_from_proto,
    open_from_proto,
    session_event,
    several,
    shared_room,
    verdict_message,
)
from outrider.actors.target.state.target_events import (
    CloseSession,
    CloseStream,
    CommitFrame,
    Committed,
    DrafterJoined,
    DrafterLeft,
    DraftersWanted,
    Failed,
    FeedbackReady,
    Finished,
    Opened,
    Output,
    ResyncRequest,
    SessionOwner,
    Steer,
    VerdictsSent,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker
from outrider.actors.tracing.recorder import Recorder
from outrider.actors.tracing.trace_messages import StreamLog
from outrider.actors.tracing.trace_stream import serve_trace
from outrider.v1 import target_pb2, target_pb2_grpc, trace_pb2

OUTGOING_MESSAGES = 4096
"""Messages queued for a peer that does not read; some seconds of the fastest decoding. Beyond it the peer is cut off."""

NO_ROOM = "RESOURCE_EXHAUSTED"
"""Code of a session that was refused because every slot is taken."""

MOST_WAITING = 128
"""Events that wait for the worker while drafters are read; with more, they have to wait with what they send. What comes while passes run is
taken in at once, so that so many are waiting only where drafters send faster than the target can take."""

MOST_UNREAD = 256
"""Answers that wait for a drafter while it is read. Each may be a whole text, asked for by a few bytes, so that who asks without reading the
answers would fill the memory."""

ROOM_GAP_S = 0.02
"""Changes of who holds which slot are told together for so long."""

_log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class TargetServicer(target_pb2_grpc.TargetServiceServicer):
    """The streams of a target."""

    def __init__(
        self,
        settings: TargetSettings,
        engine: TimedEngine,
        fingerprint: str,
        tokenizer_fingerprint: str,
        worker: TargetWorker,
        recorder: Recorder,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._device = compute_device(
            engine.spec.device,
            threads=settings.engine.num_threads,
            is_emulated=bool(engine.spec.emulated),
        )
        self._fingerprint = fingerprint
        self._tokenizer_fingerprint = tokenizer_fingerprint
        self._worker = worker
        self._recorder = recorder
        self._incarnations = PeerIncarnations()
        self._coordinators: dict[int, Outbox[target_pb2.SessionEvent]] = {}
        self._drafters: dict[str, Outbox[target_pb2.VerdictMessage]] = {}
        self._logs: dict[str, StreamLog] = {}
        self._feedback = FeedbackStreams(
            target=settings.name,
            spec=engine.spec,
            tallies=worker.state.tally.feedback,
            post=worker.post,
            recorder=recorder,
        )
        self._refusals = SeldomLog(_log)
        self._next_stream = 1
        self._wants_drafters = True
        self._shares = Shares()
        self._telling: asyncio.TimerHandle | None = None

    def deliver(self, outputs: list[Output]) -> None:
        """Sends what a step of the worker put out, to drafters first: they are waited for. On the event loop."""
        told: list[Opened | CommitFrame | Committed | Finished | Failed] = []
        for output in outputs:
            match output:
                case Opened() | CommitFrame() | Committed() | Finished() | Failed():
                    told.append(output)
                case VerdictsSent():
                    self._tell(output.drafter, verdict_message(output))
                case FeedbackReady():
                    self._feedback.deliver(output)
                case DraftersWanted():
                    self._wants_drafters = output.is_wanted
                    for each in self._coordinators.values():
                        each.put(drafters_wanted(output.is_wanted))
                case _:
                    self._tell(output.drafter, drafter_message(output))
        for event in told:
            if isinstance(event, CommitFrame):
                coordinator = self._coordinators.get(event.stream)
                message = commit_message(event)
            else:
                self._count(event)
                coordinator = self._coordinators.get(event.owner.stream)
                message = session_event(event)
            if coordinator is not None:
                coordinator.put(message)

    def _tell(self, drafter: str, message: target_pb2.VerdictMessage) -> None:
        """Queues a message for a drafter, if it is there."""
        outbox = self._drafters.get(drafter)
        if outbox is not None:
            self._logs[drafter].sent(message)
            outbox.put(message)

    def _count(self, event: Opened | Committed | Finished | Failed) -> None:
        """Notes who holds which slot, and tells the others soon."""
        stream, session = event.owner.stream, event.owner.session
        match event:
            case Committed():
                return
            case Opened():
                self._shares.opened(stream, session)
            case Finished() | Failed():
                self._shares.ended(stream, session)
                if isinstance(event, Failed) and event.code == NO_ROOM:
                    self._shares.refused(stream, now_s=time.monotonic())
        self._tell_room_in(ROOM_GAP_S)

    def _tell_room_in(self, wait_s: float) -> None:
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(wait_s, self._tell_room)

    def _tell_room(self) -> None:
        self._telling, now_s = None, time.monotonic()
        for stream, room in self._shares.news(now_s=now_s).items():
            if stream in self._coordinators:
                self._coordinators[stream].put(shared_room(room))
        left_s = self._shares.next_change_s(now_s=now_s)
        if left_s is not None and self._coordinators:
            self._tell_room_in(left_s + ROOM_GAP_S)

    def end_streams(self, reason: str) -> None:
        """Ends every stream."""
        _log.error("target ends its streams", target=self._settings.name, reason=reason)
        for coordinator in self._coordinators.values():
            coordinator.end()
        for drafter in self._drafters.values():
            drafter.end()

    # -- RPCs ------------------------------------------------------------------------------------------------------

    async def GetInfo(
        self, request: target_pb2.GetTargetInfoRequest, context: Context
    ) -> target_pb2.TargetInfo:
        """Describes the target."""
        spec, state = self._engine.spec, self._worker.state
        return target_pb2.TargetInfo(
            protocol_version=PROTOCOL_VERSION,
            name=self._settings.name,
            incarnation=self._settings.incarnation,
            model=self._settings.model_name,
            model_fingerprint=self._fingerprint,
            tokenizer_fingerprint=self._tokenizer_fingerprint,
            vocab_size=spec.vocab_size,
            max_context=spec.max_context,
            eos_token_ids=spec.eos_token_ids,
            **offer_of(OFFERED),
            num_slots=self._engine.num_slots,
            num_free_slots=self._engine.num_free,
            busy=self._worker.take_busy(),
            pid=os.getpid(),
            passes=self._engine.num_passes,
            model_cpu_s=self._engine.model_cpu_s,
            tokens=state.tally.totals(state.table).tokens,
            drafters=drafter_counts(state.tally),
            num_blocks=spec.num_blocks,
            width=spec.width,
        )

    async def Sessions(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[target_pb2.SessionCommand], context: Context
    ) -> None:
        """A coordinator's stream."""
        hello = await take_hello(context, own_name=self._settings.name)
        stream, self._next_stream = self._next_stream, self._next_stream + 1
        outbox: Outbox[target_pb2.SessionEvent] = Outbox(OUTGOING_MESSAGES)
        self._coordinators[stream] = outbox
        self._shares.join(stream)
        self._tell_room_in(ROOM_GAP_S)
        if not self._wants_drafters:
            outbox.put(drafters_wanted(False))
        await context.write(target_pb2.SessionEvent(hello=self._own_hello()))
        _log.info("coordinator connected", target=self._settings.name, coordinator=hello.name)
        try:
            await pump(context, outbox, lambda c: self._command(c, stream), several)
        finally:
            self._tell_overrun(outbox, coordinator=hello.name)
            del self._coordinators[stream]
            self._shares.leave(stream)
            self._tell_room_in(ROOM_GAP_S)
            self._worker.post(CloseStream(stream=stream))

    async def Exchange(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[target_pb2.DrafterMessage], context: Context
    ) -> None:
        """A drafter's stream."""
        hello = await take_hello(context, own_name=self._settings.name)
        misfit = drafter_misfit(
            hello,
            vocabulary=Vocabulary(
                size=self._engine.spec.vocab_size, tokenizer=self._tokenizer_fingerprint
            ),
            target_name=self._engine.spec.name,
            offered=OFFERED,
        ) or self._incarnations.refusal(hello.name, hello.incarnation)
        if misfit is not None:
            _log.warning("drafter refused", target=self._settings.name, reason=misfit)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, misfit)
        outbox: Outbox[target_pb2.VerdictMessage] = Outbox(OUTGOING_MESSAGES)
        former = self._drafters.get(hello.name)
        self._drafters[hello.name] = outbox
        log = StreamLog(self._recorder, hello)
        self._logs[hello.name] = log
        self._feedback.joined(hello)
        if former is not None:
            # A later start of the same drafter has come.
            former.end()
        await context.write(target_pb2.VerdictMessage(hello=self._own_hello()))
        takes_turns = self._device.holds_up(hello.device)
        self._worker.post(DrafterJoined(drafter=hello.name, takes_turns=takes_turns))
        _log.info("drafter connected", target=self._settings.name, drafter=hello.name)
        try:
            await pump(
                context,
                outbox,
                lambda m: self._drafted(m, hello.name, log),
                has_room=lambda: (
                    self._worker.num_waiting < MOST_WAITING and outbox.num_waiting < MOST_UNREAD
                ),
            )
        finally:
            self._tell_overrun(outbox, drafter=hello.name)
            if self._drafters.get(hello.name) is outbox:
                del self._drafters[hello.name], self._logs[hello.name]
                self._feedback.left(hello.name)
                self._refusals.forget(hello.name)
                self._worker.post(DrafterLeft(drafter=hello.name))
                _log.info("drafter gone", target=self._settings.name, drafter=hello.name)

    async def Feedback(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[target_pb2.FeedbackCommand], context: Context
    ) -> None:
        """What a drafter asks for beyond tokens."""
        await self._feedback.serve(context, await take_hello(context, own_name=self._settings.name))

    async def Trace(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[trace_pb2.TraceCommand], context: Context
    ) -> None:
        """Records for a timeline."""
        await serve_trace(self._recorder, self._own_hello(), "target", request_iterator, context)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _tell_overrun(self, outbox: Outbox[Any], **peer: str) -> None:
        """Says of a stream that ended why, if its peer was to blame."""
        if outbox.is_overrun:
            reason = f"it did not read {OUTGOING_MESSAGES} messages"
            _log.warning("stream cut off", target=self._settings.name, reason=reason, **peer)

    def _own_hello(self) -> target_pb2.Hello:
        spec = self._engine.spec
        return target_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            name=self._settings.name,
            incarnation=self._settings.incarnation,
            model_fingerprint=spec.fingerprint,
            tokenizer_fingerprint=self._tokenizer_fingerprint,
            vocab_size=spec.vocab_size,
            **offer_of(OFFERED),
        )

    def _command(self, command: target_pb2.SessionCommand, stream: int) -> None:
        match command.WhichOneof("command"):
            case "open":
                try:
                    self._worker.post(open_from_proto(command.open, stream))
                except ValueError as error:
                    owner = SessionOwner(stream=stream, session=command.open.session)
                    self.deliver([Failed(owner=owner, code="INVALID_ARGUMENT", message=str(error))])
            case "close":
                owner = SessionOwner(stream=stream, session=command.close.session)
                self._worker.post(CloseSession(owner=owner))
            case "steer":
                owner = SessionOwner(stream=stream, session=command.steer.session)
                try:
                    drafters = places_from_proto(command.steer.drafters)
                    self._worker.post(Steer(owner=owner, drafters=drafters))
                except ValueError as error:
                    _log.warning("steering dropped", session=owner.session, reason=str(error))

    def _drafted(self, message: target_pb2.DrafterMessage, drafter: str, log: StreamLog) -> None:
        traced = log.received(message)
        vocab_size = self._engine.spec.vocab_size
        match message.WhichOneof("message"):
            case "candidates":
                try:
                    frame = candidates_from_proto(message.candidates, drafter, vocab_size, traced)
                    if frame is not None:
                        self._worker.post(frame)
                except ValueError as error:
                    self._refusals.warning("candidates dropped", drafter=drafter, reason=str(error))
                for tree in message.candidates.frozen:
                    try:
                        self._worker.post(frozen_from_proto(tree, drafter, vocab_size, traced))
                    except ValueError as error:
                        self._refusals.warning(
                            "frozen tree dropped", drafter=drafter, reason=str(error)
                        )
            case "resync":
                self._worker.post(
                    ResyncRequest(
                        drafter=drafter,
                        handle=message.resync.handle,
                        length=message.resync.length,
                    )
                )
