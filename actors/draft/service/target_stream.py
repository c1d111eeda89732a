"""The stream from this drafter to one start of one target: handshake, candidates out, verdicts in.

On the event loop. A target that does not read is cut off when too much waits to be written; one whose verdicts cannot be read, at once.
When the stream ends, however it ends, `on_lost` is called once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import grpc
import structlog

from outrider.actors.draft.service.draft_messages import event_from_proto, message_of
from outrider.actors.draft.service.feedback_receiver import FeedbackReceiver, NoOffer
from outrider.actors.draft.state.draft_events import CandidatesSent, Event, ResyncWanted
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.exchange.frames import BadFrame
from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.exchange.vocabulary import UNBOUNDED, Vocabulary, difference
from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.actors.tracing.recorder import Recorder
from outrider.actors.tracing.trace_messages import StreamLog
from outrider.v1 import target_pb2, target_pb2_grpc

CONNECT_TIMEOUT_S = 5.0
"""Bound on connecting and shaking hands. Less fails on a machine that is starting up, more keeps sessions waiting."""

MAX_WAITING = 4096
"""Trees that wait to be written, at most; seconds of the fastest drafting."""

_log = structlog.get_logger(__name__)


class LinkRefused(Exception):
    """No stream to the target: it cannot be reached, or refuses us."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        """A gRPC status code."""
        self.message = message
        """What happened and what to do."""


class TargetStream:
    """One stream to one target."""

    def __init__(
        self,
        number: int,
        address: str,
        *,
        incarnation: int,
        hello: target_pb2.Hello,
        post: Callable[[Event], None],
        on_lost: Callable[[TargetStream, str], None],
        recorder: Recorder | None = None,
        credentials: Credentials = OPEN,
        feedback: FeedbackRequest | None = None,
    ) -> None:
        """
        Args:
            number: Names the link in session keys; never used twice.
            address: The target's address.
            incarnation: The start of the target that is meant.
            hello: How we introduce ourselves.
            post: Takes what the target says.
            on_lost: Told the reason when the stream has ended.
            recorder: Takes records for a timeline; None: nobody asks for them.
            credentials: What the stream carries.
            feedback: What is asked for beyond tokens; None: nothing.
        """
        self.number = number
        self.address = address
        self.incarnation = incarnation
        self.is_open = False
        self.round_trip_s = 0.0
        """Seconds from our hello to the target's."""
        self.vocab_size = UNBOUNDED
        """Number of the target's token ids."""
        self.tokenizer = ""
        """Fingerprint of the target's tokenizer; empty: it has none."""
        self._credentials = credentials
        self._hello = target_pb2.Hello()
        self._hello.CopyFrom(hello)
        self._hello.stream = number
        recorder = recorder or Recorder()
        self._log = StreamLog(recorder, self._hello)
        self._feedback: FeedbackReceiver | None = None
        if feedback is not None:
            self._feedback = FeedbackReceiver(
                feedback,
                address,
                hello=self._hello,
                post=post,
                recorder=recorder,
                credentials=credentials,
            )
        self._post = post
        self._on_lost = on_lost
        self._waiting: list[CandidatesSent | ResyncWanted] = []
        self._num_waiting = 0
        self._news = asyncio.Event()
        self._cut: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._channel: grpc.aio.Channel | None = None
        self._call: (
            grpc.aio.StreamStreamCall[target_pb2.DrafterMessage, target_pb2.VerdictMessage] | None
        ) = None
        self._pump: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connects and shakes hands.

        Raises:
            LinkRefused: The target cannot be reached, is another start than meant, or refuses us.
        """
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                answer = await self._shake_hands()
                self._check(answer)
                if self._feedback is not None:
                    await self._feedback.open()
        except TimeoutError as error:
            await self._hang_up()
            raise LinkRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"target {self.address} did not answer within {CONNECT_TIMEOUT_S:g} s; is it running "
                "and reachable from the drafter?",
            ) from error
        except grpc.aio.AioRpcError as error:
            await self._hang_up()
            raise LinkRefused(error.code(), error.details() or repr(error)) from error
        except NoOffer as error:
            await self._hang_up()
            raise LinkRefused(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        except BaseException:
            await self._hang_up()
            raise
        self.is_open = True
        self._pump = asyncio.create_task(self._run(), name=f"link to {self.address}")

    async def close(self) -> None:
        """Ends the stream. `on_lost` is told, if the stream was open."""
        if self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump
        await self._hang_up()

    def send(self, report: CandidatesSent | ResyncWanted) -> None:
        """Hands over what the target is to hear. Ignored once the stream has ended."""
        if not self.is_open:
            return
        self._waiting.append(report)
        self._num_waiting += report.num_entries if isinstance(report, CandidatesSent) else 1
        if self._num_waiting > MAX_WAITING and not self._cut.done():
            self._cut.set_result(f"the target did not read {MAX_WAITING} trees")
        self._news.set()

    def took_features(self, num_bytes: int) -> None:
        """The worker has taken so many bytes of features in."""
        if self._feedback is not None:
            self._feedback.taken(num_bytes)

    async def _shake_hands(self) -> target_pb2.VerdictMessage:
        self._channel = internal_channel(self.address, self._credentials)
        stub: target_pb2_grpc.TargetServiceAsyncStub = target_pb2_grpc.TargetServiceStub(
            self._channel
        )
        self._call = stub.Exchange()
        # A refusal ends the call while we write; reading then says why.
        with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await self._call.write(target_pb2.DrafterMessage(hello=self._hello))
        written = time.monotonic()
        answer = await self._call.read()
        self.round_trip_s = time.monotonic() - written
        if not isinstance(answer, target_pb2.VerdictMessage):
            raise LinkRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"target {self.address} ended the stream before its hello; try again",
            )
        return answer

    def _check(self, answer: target_pb2.VerdictMessage) -> None:
        hello, ours = answer.hello, self._hello
        problem = None
        if not answer.HasField("hello"):
            problem = "its first message is no hello; is it a target?"
        elif hello.protocol_version != PROTOCOL_VERSION:
            problem = (
                f"it speaks protocol {hello.protocol_version}, this drafter {PROTOCOL_VERSION}; run "
                "the same release on both"
            )
        elif hello.incarnation != self.incarnation:
            problem = (
                f"it is start {hello.incarnation}, not {self.incarnation}; open the session there "
                "again"
            )
        if problem is not None:
            raise LinkRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"target {hello.name!r} at {self.address} does not fit: {problem}",
            )
        problem = difference(_vocabulary(ours), _vocabulary(hello), target_name=hello.name)
        if problem:
            raise LinkRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this drafter does not fit target {hello.name!r} at {self.address}: {problem}",
            )
        self.vocab_size = hello.vocab_size or UNBOUNDED
        self.tokenizer = hello.tokenizer_fingerprint

    async def _run(self) -> None:
        tasks: list[asyncio.Future[str]] = [
            asyncio.create_task(self._read()),
            asyncio.create_task(self._write()),
            self._cut,
        ]
        reason = "this drafter ended it"
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            reason = " and ".join(sorted({task.result() for task in done}))
        finally:
            self.is_open = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._hang_up()
            _log.info("link ended", address=self.address, reason=reason)
            self._on_lost(self, f"the stream to the target at {self.address} ended: {reason}")

    async def _read(self) -> str:
        assert self._call is not None, "opened before it is run"
        try:
            while isinstance(message := await self._call.read(), target_pb2.VerdictMessage):
                self._log.received(message)
                event = event_from_proto(message, self.number)
                if event is not None:
                    self._post(event)
        except BadFrame as error:
            return f"the target sent verdicts that cannot be read: {error}"
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return "the target closed it"

    async def _write(self) -> str:
        assert self._call is not None, "opened before it is run"
        while True:
            await self._news.wait()
            self._news.clear()
            waiting, self._waiting = self._waiting, []
            self._num_waiting = 0
            try:
                for report in waiting:
                    message = message_of(report)
                    self._log.sent(message)
                    await self._call.write(message)
            except asyncio.InvalidStateError:
                return "the target closed it"
            except grpc.aio.AioRpcError as error:
                return f"{error.code().name}: {error.details()}"

    async def _hang_up(self) -> None:
        if self._feedback is not None:
            await self._feedback.close()
        if self._call is not None:
            self._call.cancel()
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()


def _vocabulary(hello: target_pb2.Hello) -> Vocabulary:
    return Vocabulary(size=hello.vocab_size, tokenizer=hello.tokenizer_fingerprint)
