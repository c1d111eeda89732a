"""`DraftService`: commands of coordinators to the worker, what became of sessions back to them.

Everything here runs on the event loop. Candidates and verdicts do not pass here but over the links to the targets. A session
belongs to the coordinator stream that it was attached on, and ends with it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import grpc
import structlog

from outrider.actors.draft.draft_worker import DraftWorker
from outrider.actors.draft.service.draft_messages import attach_from_proto
from outrider.actors.draft.service.target_stream import LinkRefused
from outrider.actors.draft.service.target_streams import TargetLinks
from outrider.actors.draft.state.draft_events import (
    Attached,
    AttachRefused,
    CandidatesSent,
    Detach,
    Ended,
    FeaturesTaken,
    Report,
    ResyncWanted,
    SessionKey,
)
from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.exchange.feedback_offer import request_to_proto
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.exchange.option_fields import numbers
from outrider.actors.exchange.verifier_wire import offered_by
from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.hello import PeerIncarnations, take_hello
from outrider.actors.rpc.outbox import Outbox
from outrider.actors.rpc.pump import pump
from outrider.actors.speculation.policies import LengthChoice
from outrider.actors.tracing.recorder import Recorder
from outrider.actors.tracing.trace_stream import serve_trace
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2, trace_pb2

OUTGOING_EVENTS = 4096
"""Events queued for a coordinator that does not read. Beyond it the coordinator is cut off."""

_log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class _CoordinatorStream:
    """One coordinator's stream."""

    def __init__(self) -> None:
        self.keys: dict[int, SessionKey] = {}
        """The coordinator's number of each attached session to its key here."""
        self.attaching: dict[int, asyncio.Task[None]] = {}
        self.outbox: Outbox[draft_pb2.DraftEvent] = Outbox(OUTGOING_EVENTS)


class DraftServicer(draft_pb2_grpc.DraftServiceServicer):
    """The streams of a drafter."""

    def __init__(
        self,
        *,
        worker: DraftWorker,
        hello: target_pb2.Hello,
        model: str,
        lengths: Sequence[LengthChoice],
        engine: TimedEngine | None,
        reads_siblings: bool,
        recorder: Recorder,
        credentials: Credentials,
        feedback: FeedbackRequest | None,
    ) -> None:
        """
        Args:
            worker: Where events go.
            hello: How the drafter introduces itself.
            model: Name of the draft model, empty without one.
            lengths: Draft length policies that it can serve.
            engine: The draft model, None without one.
            reads_siblings: Whether it drafts the sequences of a request from each other.
            recorder: Takes records for a timeline.
            credentials: What streams to targets carry.
            feedback: What the method asks of targets beyond tokens; None: nothing.
        """
        self._worker = worker
        self._hello = hello
        self._served = offered_by(hello)
        self._lengths = tuple(lengths)
        self._model = model
        self._engine = engine
        self._reads_siblings = reads_siblings
        self._reads = None if feedback is None else request_to_proto(feedback, 0)
        self._recorder = recorder
        self._links = TargetLinks(
            hello=hello,
            post=worker.post,
            on_lost=self._link_lost,
            recorder=self._recorder,
            credentials=credentials,
            feedback=feedback,
        )
        self._streams: set[_CoordinatorStream] = set()
        self._owners: dict[SessionKey, tuple[_CoordinatorStream, int]] = {}
        self._incarnations = PeerIncarnations()
        self._closed: str | None = None

    # -- RPCs ------------------------------------------------------------------------------------------------------

    async def GetInfo(
        self, request: draft_pb2.GetDrafterInfoRequest, context: Context
    ) -> draft_pb2.DrafterInfo:
        """Describes the drafter."""
        hello = self._hello
        return draft_pb2.DrafterInfo(
            protocol_version=hello.protocol_version,
            name=hello.name,
            incarnation=hello.incarnation,
            method=hello.method,
            model=self._model,
            model_fingerprint=hello.model_fingerprint,
            tokenizer_fingerprint=hello.tokenizer_fingerprint,
            vocab_size=hello.vocab_size,
            verifiers=hello.verifiers,
            verifier_names=hello.verifier_names,
            draft_lengths=numbers(draft_pb2.DrafterInfo, "draft_lengths", self._lengths),
            num_slots=self._worker.num_slots,
            num_free_slots=self._worker.num_free_slots,
            busy=self._worker.busy,
            pid=os.getpid(),
            passes=self._engine.num_passes if self._engine is not None else 0,
            model_cpu_s=self._engine.model_cpu_s if self._engine is not None else 0.0,
            reads_siblings=self._reads_siblings,
            note=self._worker.note,
            reads=self._reads,
        )

    async def Sessions(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[draft_pb2.DraftCommand], context: Context
    ) -> None:
        """A coordinator's stream."""
        hello = await take_hello(context, own_name=self._hello.name)
        refusal = self._incarnations.refusal(hello.name, hello.incarnation)
        if refusal is not None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, refusal)
        stream = _CoordinatorStream()
        self._streams.add(stream)
        try:
            await context.write(draft_pb2.DraftEvent(hello=self._hello))
            _log.info("coordinator connected", drafter=self._hello.name, coordinator=hello.name)
            await pump(context, stream.outbox, lambda c: self._command(c, stream))
        finally:
            for task in stream.attaching.values():
                task.cancel()
            self._streams.discard(stream)
            for session in list(stream.keys):
                self._detach(stream, session)
            _log.info("coordinator gone", drafter=self._hello.name, coordinator=hello.name)

    async def Trace(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[trace_pb2.TraceCommand], context: Context
    ) -> None:
        """Records for a timeline."""
        await serve_trace(self._recorder, self._hello, "drafter", request_iterator, context)

    # -- from the worker and the server ----------------------------------------------------------------------------

    def deliver(self, report: Report) -> None:
        """Passes on what the worker reports."""
        match report:
            case CandidatesSent(link=number) | ResyncWanted(key=SessionKey(link=number)):
                if link := self._links.find(number):
                    link.send(report)
            case FeaturesTaken(link=number):
                if link := self._links.find(number):
                    link.took_features(report.num_bytes)
            case Attached():
                owner = self._owners.get(report.key)
                if owner is not None:
                    stream, session = owner
                    attached = draft_pb2.SessionAttached(session=session)
                    stream.outbox.put(draft_pb2.DraftEvent(attached=attached))
                else:
                    # What became of an earlier attachment was told of this one, and its owner has given it up.
                    self._worker.post(Detach(key=report.key))
            case AttachRefused():
                owner = self._disown(report.key)
                if owner is not None:
                    self._refuse(*owner, report.code, report.message)
            case Ended():
                self._tell_detached(report.key, report.message)

    async def close(self, reason: str) -> None:
        """Ends every session, then every stream. What is attached from then on is refused."""
        self._closed = reason
        for key in list(self._owners):
            self._worker.post(Detach(key=key))
            self._tell_detached(key, reason)
        for stream in list(self._streams):
            stream.outbox.finish()
        await self._links.close()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _command(self, command: draft_pb2.DraftCommand, stream: _CoordinatorStream) -> None:
        match command.WhichOneof("command"):
            case "attach":
                session = command.attach.session
                self._detach(stream, session)
                task = asyncio.create_task(self._attach(stream, command.attach))
                stream.attaching[session] = task
            case "detach":
                self._detach(stream, command.detach.session)

    async def _attach(self, stream: _CoordinatorStream, command: draft_pb2.AttachSession) -> None:
        session = command.session
        try:
            if self._closed is not None:
                raise LinkRefused(grpc.StatusCode.UNAVAILABLE, self._closed)
            # Checked before anything is dialled; the link's number is put in afterwards.
            attach_from_proto(command, SessionKey(0, command.handle), self._served, self._lengths)
            link = await self._links.get(command.target_address, command.target_incarnation)
        except ValueError as error:
            self._refuse(stream, session, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except LinkRefused as error:
            self._refuse(stream, session, error.code, error.message)
        else:
            key = SessionKey(link.number, command.handle)
            # The last one to attach owns the session: the other coordinator has lost it, or is gone.
            self._tell_detached(key, "the session was attached again elsewhere")
            self._owners[key] = (stream, session)
            stream.keys[session] = key
            event = attach_from_proto(command, key, self._served, self._lengths)
            known = replace(
                event,
                round_trip_s=link.round_trip_s,
                vocab_size=link.vocab_size,
                tokenizer=link.tokenizer,
            )
            self._worker.post(known)
        finally:
            if stream.attaching.get(session) is asyncio.current_task():
                del stream.attaching[session]

    def _detach(self, stream: _CoordinatorStream, session: int) -> None:
        task = stream.attaching.pop(session, None)
        if task is not None:
            task.cancel()
        key = stream.keys.get(session)
        if key is not None:
            self._disown(key)
            self._worker.post(Detach(key=key))

    def _disown(self, key: SessionKey) -> tuple[_CoordinatorStream, int] | None:
        owner = self._owners.pop(key, None)
        if owner is not None:
            stream, session = owner
            stream.keys.pop(session, None)
        return owner

    def _tell_detached(self, key: SessionKey, message: str) -> None:
        owner = self._disown(key)
        if owner is not None:
            stream, session = owner
            detached = draft_pb2.SessionDetached(session=session, message=message)
            stream.outbox.put(draft_pb2.DraftEvent(detached=detached))

    @staticmethod
    def _refuse(
        stream: _CoordinatorStream, session: int, code: grpc.StatusCode, message: str
    ) -> None:
        number: int = code.value[0]
        refused = draft_pb2.AttachRefused(session=session, code=number, message=message)
        stream.outbox.put(draft_pb2.DraftEvent(refused=refused))

    def _link_lost(self, number: int, reason: str) -> None:
        for key in [key for key in self._owners if key.link == number]:
            self._tell_detached(key, reason)
