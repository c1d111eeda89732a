"""The streams on which drafters learn of passes beyond tokens, one for each that asked. On the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import structlog

from outrider.actors.engine.protocol import ModelSpec
from outrider.actors.exchange.feedback_offer import FeedbackRefused, offer_for, request_from_proto
from outrider.actors.rpc.hello import HELLO_TIMEOUT_S
from outrider.actors.rpc.pump import pump
from outrider.actors.target.service.feedback_queue import FeedbackQueue
from outrider.actors.target.state.tally import FeedbackTally
from outrider.actors.target.state.target_events import (
    Event,
    FeedbackClosed,
    FeedbackOpened,
    FeedbackReady,
)
from outrider.actors.tracing.recorder import Recorder, args_of
from outrider.v1 import target_pb2, trace_pb2

_log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class FeedbackStreams:
    """Who gets feedback. A stream belongs to an exchange of candidates and ends with it."""

    def __init__(
        self,
        *,
        target: str,
        spec: ModelSpec,
        tallies: dict[str, FeedbackTally],
        post: Callable[[Event], None],
        recorder: Recorder,
    ) -> None:
        """
        Args:
            target: The target's name.
            spec: Of its model.
            tallies: Counts by drafter; added to.
            post: Takes events for the worker.
            recorder: Takes records for a timeline.
        """
        self._target = target
        self._spec = spec
        self._tallies = tallies
        self._post = post
        self._recorder = recorder
        self._exchanges: dict[str, tuple[int, int]] = {}
        """Start and number of each drafter's stream of candidates."""
        self._queues: dict[str, FeedbackQueue] = {}
        # A thread is started when there is something to pack.
        self._packing = ThreadPoolExecutor(1, thread_name_prefix="feedback")

    def joined(self, hello: target_pb2.Hello) -> None:
        """A drafter's stream of candidates was opened; feedback for one before it ends."""
        self.left(hello.name)
        self._exchanges[hello.name] = hello.incarnation, hello.stream

    def left(self, drafter: str) -> None:
        """A drafter's stream of candidates is over."""
        self._exchanges.pop(drafter, None)
        queue = self._queues.get(drafter)
        if queue is not None:
            queue.end()

    def deliver(self, ready: FeedbackReady) -> None:
        """Passes features on, if their drafter still wants them."""
        queue = self._queues.get(ready.drafter)
        if queue is not None:
            queue.put(ready)
            if self._recorder.is_on:
                self._record(ready)

    async def serve(self, context: Context, hello: target_pb2.Hello) -> None:
        """A drafter's stream, after its hello."""
        name = hello.name
        if self._exchanges.get(name) != (hello.incarnation, hello.stream):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"drafter {name!r} has no stream {hello.stream} of candidates here; open that first",
            )
        queue = await self._subscribe(context, name)
        try:
            await pump(context, queue, lambda command: queue.grant(command.credit_bytes))
        finally:
            if self._queues.get(name) is queue:
                del self._queues[name]
                self._post(FeedbackClosed(drafter=name))
                _log.info("feedback ended", target=self._target, drafter=name)

    async def _subscribe(self, context: Context, name: str) -> FeedbackQueue:
        """Reads what is asked for, and answers."""
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                command = await context.read()
        except TimeoutError:
            command = grpc.aio.EOF
        if command is grpc.aio.EOF or not command.HasField("subscribe"):
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "the second message must be a subscription"
            )
        try:
            request = request_from_proto(command.subscribe)
            offer = offer_for(
                request,
                target=self._target,
                fingerprint=self._spec.fingerprint,
                num_blocks=self._spec.num_blocks,
                width=self._spec.width,
            )
        except FeedbackRefused as error:
            _log.warning("feedback refused", target=self._target, drafter=name, reason=str(error))
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        queue = FeedbackQueue(
            request,
            offer,
            credit_bytes=command.subscribe.credit_bytes,
            tally=self._tallies.setdefault(name, FeedbackTally()),
            executor=self._packing,
        )
        former = self._queues.get(name)
        self._queues[name] = queue
        if former is not None:
            former.end()
        answer = target_pb2.FeedbackOffer(
            num_blocks=offer.num_blocks,
            width=offer.width,
            revision=offer.revision,
            model_fingerprint=self._spec.fingerprint,
        )
        await context.write(target_pb2.FeedbackMessage(offer=answer))
        self._post(FeedbackOpened(drafter=name, request=request, layers=offer.layers))
        _log.info("feedback begins", target=self._target, drafter=name, layers=request.layers)
        return queue

    def _record(self, ready: FeedbackReady) -> None:
        self._recorder.add(
            trace_pb2.TraceSpan(
                name="features",
                track="feedback",
                start_ns=self._recorder.clock_ns(),
                args=args_of({"drafter": ready.drafter, "rows": ready.num_rows}),
                handles=ready.handles_E.tolist(),
            )
        )
