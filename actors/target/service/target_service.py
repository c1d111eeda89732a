"""`TargetService`: streams in, events to the worker; outputs of the worker, streams out.

Everything here runs on the event loop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import grpc
import structlog

from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.engine.turn_taking import compute_device
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.exchange.verifier_wire import offer_of
from outrider.actors.rpc.hello import take_hello
from outrider.actors.target.opening import OFFERED
from outrider.actors.target.service.coordinator_streams import CoordinatorStreams
from outrider.actors.target.service.drafter_streams import DrafterStreams
from outrider.actors.target.service.feedback_streams import FeedbackStreams
from outrider.actors.target.service.target_messages import (
    drafter_counts,
    drafter_message,
    verdict_message,
)
from outrider.actors.target.state.target_events import (
    CommitFrame,
    Committed,
    DraftersWanted,
    Failed,
    FeedbackReady,
    Finished,
    Opened,
    Output,
    VerdictsSent,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker
from outrider.actors.tracing.recorder import Recorder
from outrider.actors.tracing.trace_stream import serve_trace
from outrider.v1 import target_pb2, target_pb2_grpc, trace_pb2

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
        self._fingerprint = fingerprint
        self._tokenizer_fingerprint = tokenizer_fingerprint
        self._worker = worker
        self._recorder = recorder
        self._coordinators = CoordinatorStreams(settings.name, worker.post)
        self._feedback = FeedbackStreams(
            target=settings.name,
            spec=engine.spec,
            tallies=worker.state.tally.feedback,
            post=worker.post,
            recorder=recorder,
        )
        device = compute_device(
            engine.spec.device,
            threads=settings.engine.num_threads,
            is_emulated=bool(engine.spec.emulated),
        )
        self._drafters = DrafterStreams(
            settings.name,
            engine.spec,
            tokenizer_fingerprint,
            device,
            worker,
            self._feedback,
            recorder,
        )

    def deliver(self, outputs: list[Output]) -> None:
        """Sends what a step of the worker put out, to drafters first: they are waited for. On the event loop."""
        told: list[Opened | CommitFrame | Committed | Finished | Failed] = []
        for output in outputs:
            match output:
                case Opened() | CommitFrame() | Committed() | Finished() | Failed():
                    told.append(output)
                case VerdictsSent():
                    self._drafters.tell(output.drafter, verdict_message(output))
                case FeedbackReady():
                    self._feedback.deliver(output)
                case DraftersWanted():
                    self._coordinators.want_drafters(output.is_wanted)
                case _:
                    self._drafters.tell(output.drafter, drafter_message(output))
        for event in told:
            self._coordinators.deliver(event)

    def end_streams(self, reason: str) -> None:
        """Ends every stream."""
        _log.error("target ends its streams", target=self._settings.name, reason=reason)
        self._coordinators.end()
        self._drafters.end()

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
        await self._coordinators.serve(context, hello.name, self._own_hello())

    async def Exchange(  # type: ignore[override]  # grpc.aio also takes handlers that write to the context
        self, request_iterator: AsyncIterator[target_pb2.DrafterMessage], context: Context
    ) -> None:
        """A drafter's stream."""
        hello = await take_hello(context, own_name=self._settings.name)
        await self._drafters.serve(context, hello, self._own_hello())

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
