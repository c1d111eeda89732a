"""The stream on which this drafter learns of one target's passes beyond tokens. On the event loop.

It has a connection of its own, so that a prompt's hidden states never stand before a verdict in one line. When it breaks it is opened again
for as long as candidates are exchanged; what was under way is missing then, which is usual.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import grpc
import structlog

from outrider.actors.draft.state.draft_events import Event, FeaturesReceived
from outrider.actors.exchange.features import Features, check_asked, decode
from outrider.actors.exchange.feedback_offer import request_to_proto
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.exchange.frames import BadFrame
from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.actors.tracing.recorder import Recorder, args_of
from outrider.v1 import target_pb2, target_pb2_grpc, trace_pb2

WINDOW_BYTES = 8 * 1024 * 1024
"""Bytes of features on their way to the worker, at most: a hundredth of a second of a fast network."""

AGAIN_AFTER_S = 1.0
"""A stream that broke is opened again after this time."""

_log = structlog.get_logger(__name__)

_Call = grpc.aio.StreamStreamCall[target_pb2.FeedbackCommand, target_pb2.FeedbackMessage]


class NoOffer(Exception):
    """The target ended the stream before it answered."""


class FeedbackReceiver:
    """One subscription at one target."""

    def __init__(
        self,
        request: FeedbackRequest,
        address: str,
        *,
        hello: target_pb2.Hello,
        post: Callable[[Event], None],
        recorder: Recorder,
        credentials: Credentials,
    ) -> None:
        """
        Args:
            request: What the method asks for.
            address: The target's address.
            hello: That of the stream of candidates, its number included.
            post: Takes what the target tells.
            recorder: Takes records for a timeline.
            credentials: What the stream carries.
        """
        self._request = request
        self._address = address
        self._hello = hello
        self._post = post
        self._recorder = recorder
        self._credentials = credentials
        self._revision = 0
        self._taken_bytes = 0
        """Taken in by the worker, and not told to the target yet."""
        self._call: _Call | None = None
        self._channel: grpc.aio.Channel | None = None
        self._task: asyncio.Task[None] | None = None
        self._granting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Subscribes, and listens from then on.

        Raises:
            grpc.aio.AioRpcError: The target cannot be reached or refuses; the details say why.
            NoOffer: It ended the stream without a word.
        """
        await self._subscribe()
        self._task = asyncio.create_task(self._listen(), name=f"feedback of {self._address}")

    async def close(self) -> None:
        """Ends the stream."""
        for task in (self._task, *self._granting):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                    await task
        await self._hang_up()

    def taken(self, num_bytes: int) -> None:
        """The worker has taken in so much; the target may send as much again. Told in large pieces."""
        self._taken_bytes += num_bytes
        if self._taken_bytes < WINDOW_BYTES // 8 or self._call is None:
            return
        credit_bytes, self._taken_bytes = self._taken_bytes, 0
        task = asyncio.create_task(self._grant(self._call, credit_bytes))
        self._granting.add(task)
        task.add_done_callback(self._granting.discard)

    async def _grant(self, call: _Call, credit_bytes: int) -> None:
        # A stream that is over needs no credit.
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await call.write(target_pb2.FeedbackCommand(credit_bytes=credit_bytes))

    async def _subscribe(self) -> None:
        self._channel = internal_channel(self._address, self._credentials, is_shared=False)
        stub: target_pb2_grpc.TargetServiceAsyncStub = target_pb2_grpc.TargetServiceStub(
            self._channel
        )
        call = stub.Feedback()
        self._taken_bytes = 0
        subscription = request_to_proto(self._request, WINDOW_BYTES)
        # A refusal ends the call while we write; reading then says why.
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await call.write(target_pb2.FeedbackCommand(hello=self._hello))
            await call.write(target_pb2.FeedbackCommand(subscribe=subscription))
        answer = await call.read()
        if not isinstance(answer, target_pb2.FeedbackMessage):
            raise NoOffer(f"target {self._address} ended the stream of feedback before its offer")
        self._revision = answer.offer.revision
        self._call = call
        _log.info("feedback begins", address=self._address, layers=self._request.layers)

    async def _listen(self) -> None:
        while True:
            try:
                while isinstance(message := await self._read(), target_pb2.FeedbackMessage):
                    self._take(message.frame)
                reason = "the target closed it"
            except grpc.aio.AioRpcError as error:
                reason = f"{error.code().name}: {error.details()}"
            _log.warning("feedback ended", address=self._address, reason=reason)
            await self._hang_up()
            while self._call is None:
                await asyncio.sleep(AGAIN_AFTER_S)
                try:
                    await self._subscribe()
                except (grpc.aio.AioRpcError, NoOffer) as error:
                    _log.debug("no feedback yet", address=self._address, reason=repr(error))
                    await self._hang_up()

    async def _read(self) -> object:
        assert self._call is not None, "subscribed before it is read"
        return await self._call.read()

    def _take(self, frame: bytes) -> None:
        features: Features | None
        try:
            features = decode(frame)
            check_asked(features, self._request)
        except BadFrame as error:
            _log.warning("features dropped", address=self._address, reason=str(error))
            features = None
        if self._recorder.is_on and features is not None:
            self._recorder.add(
                trace_pb2.TraceSpan(
                    name="features",
                    track="feedback",
                    start_ns=self._recorder.clock_ns(),
                    args=args_of({"rows": features.num_rows, "bytes": len(frame)}),
                    handles=features.handles_E.tolist(),
                )
            )
        self._post(
            FeaturesReceived(
                link=self._hello.stream,
                revision=self._revision,
                features=features,
                num_bytes=len(frame),
            )
        )

    async def _hang_up(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
