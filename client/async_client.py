"""The client, for asyncio. `blocking.py` runs it for threads."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from outrider.client.async_stream import AsyncGenerationStream
from outrider.client.async_trace import AsyncRunningTrace
from outrider.client.connection.access import Access, Tls
from outrider.client.connection.channel import DEFAULT_ADDRESS, parse_addresses
from outrider.client.connection.connections import Connections
from outrider.client.connection.errors import (
    Cancelled,
    DeadlineExceeded,
    OutriderError,
    Unavailable,
    closing_told,
    from_rpc_error,
)
from outrider.client.connection.retry import RetryPolicy
from outrider.client.connection.timeouts import (
    CALL_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    check_timeout,
)
from outrider.client.connection.waits import AsyncioWaits, Waits
from outrider.client.connection.wanted import of_kind
from outrider.client.messages.collect import ResultCollector
from outrider.client.messages.request_options import Message, SamplingOptions, SpeculationOptions
from outrider.client.messages.request_wire import (
    detokenize_to_proto,
    request_to_proto,
    tokenize_to_proto,
)
from outrider.client.messages.result_wire import (
    health_from_proto,
    model_from_proto,
    status_from_proto,
)
from outrider.client.messages.results import Generation
from outrider.client.messages.service_info import Health, ModelInfo, Status
from outrider.client.messages.stream_progress import StreamProgress, new_request_id
from outrider.client.messages.trace_request import trace_request
from outrider.client.messages.wire_values import put
from outrider.client.timeline.timeline_model import Timeline
from outrider.v1 import generation_pb2

if TYPE_CHECKING:
    from outrider.v1.generation_pb2_grpc import GenerationServiceAsyncStub

_Answer = TypeVar("_Answer")

_CLOSED = "the client was closed"


class AsyncClient:
    """Talks to an Outrider service.

        async with AsyncClient("127.0.0.1:50051") as client:
            async for event in client.stream("Once upon a time"):
                ...

    Connects when first used, on each event loop by itself: one client may be used in several calls of `asyncio.run`. Short calls, and requests that were not admitted yet, are tried again when nobody
    answers, at each address in turn; a request that is refused because the service is full waits as advised; a stream
    that breaks is taken up again where it stopped. `RetryPolicy` holds the bounds.
    """

    _waits: ClassVar[Waits] = AsyncioWaits()

    def __init__(
        self,
        address: str | Sequence[str] = DEFAULT_ADDRESS,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        retry: RetryPolicy | None = None,
        tls: Tls | None = None,
        token: str | Path | None = None,
    ) -> None:
        """Args:
            address: `HOST:PORT`, or several of one service, as a list or separated by commas.
            timeout_s: Seconds for a whole generation, unless the call says otherwise.
            connect_timeout_s: Seconds for one attempt to connect.
            retry: Bounds of trying again.
            tls: Certificates; None: plain connections. `Tls()` trusts the public authorities.
            token: What proves to the service who calls: itself, or a path of a file whose first line it is, read with each call.

        Raises:
            InvalidRequest: An address cannot be read, a timeout is not a positive number, a file cannot be used, or a value is of
                another kind.
        """
        check_timeout("connect_timeout_s", connect_timeout_s)
        self._timeout_s = check_timeout("timeout_s", timeout_s)
        self._retry = RetryPolicy() if retry is None else of_kind("retry", retry, RetryPolicy)
        self._connections = Connections(
            parse_addresses(address),
            connect_timeout_s=connect_timeout_s,
            access=Access(tls, token),
            waits=self._waits,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; running calls are cancelled, those of other event loops as soon as these run."""
        await self._connections.close()

    def stream(
        self,
        prompt: str | None = None,
        *,
        tokens: Sequence[int] | None = None,
        messages: Sequence[Message] | None = None,
        model: str = "",
        sampling: SamplingOptions | None = None,
        speculation: SpeculationOptions | None = None,
        resume: Sequence[int] = (),
        model_fingerprint: str = "",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> AsyncGenerationStream:
        """Starts a generation and gives its events as they come. Nothing is sent before the first is asked for.

        Args:
            prompt: Text; exactly one of `prompt`, `tokens` and `messages` is given.
            tokens: Token ids, taken as they are.
            messages: A conversation, rendered by the model's chat template.
            model: The target model; empty takes the service's first.
            sampling: What decides each token.
            speculation: How to be fast.
            resume: Output tokens of this same request received earlier; needs `sampling.seed` and `model_fingerprint`.
            model_fingerprint: Only this model may answer, as an `Admission` or a `ModelInfo` told it; empty takes any.
            request_id: Names the request; default a fresh one.
            timeout_s: Seconds for the whole, waits for room and resumes included; default the client's.

        Raises:
            InvalidRequest: The request cannot be sent as it is. Iterating raises the other errors.
        """
        name = new_request_id() if request_id is None or request_id == "" else request_id
        request = request_to_proto(
            request_id=name,
            model=model,
            prompt=prompt,
            tokens=tokens,
            messages=messages,
            sampling=sampling,
            speculation=speculation,
            resume=resume,
            model_fingerprint=model_fingerprint,
        )
        progress = StreamProgress(
            request,
            policy=self._retry,
            addresses=self._connections.addresses,
            owns_id=request_id is None,
        )
        whole_s = self._timeout_s if timeout_s is None else check_timeout("timeout_s", timeout_s)
        return AsyncGenerationStream(self._connections, progress, timeout_s=whole_s)

    async def generate(
        self,
        prompt: str | None = None,
        *,
        tokens: Sequence[int] | None = None,
        messages: Sequence[Message] | None = None,
        model: str = "",
        sampling: SamplingOptions | None = None,
        speculation: SpeculationOptions | None = None,
        resume: Sequence[int] = (),
        model_fingerprint: str = "",
        request_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Generation:
        """Generates and returns the whole result. Arguments as of `stream`.

        Raises:
            OutriderError: By cause; see `errors.py`.
        """
        collector = ResultCollector()
        async with self.stream(
            prompt,
            tokens=tokens,
            messages=messages,
            model=model,
            sampling=sampling,
            speculation=speculation,
            resume=resume,
            model_fingerprint=model_fingerprint,
            request_id=request_id,
            timeout_s=timeout_s,
        ) as stream:
            async for event in stream:
                collector.add(event)
        return collector.result(resumes=stream.resumes)

    async def abort(self, request_id: str, *, timeout_s: float = CALL_TIMEOUT_S) -> bool:
        """Ends a running request, at whichever address it runs. Idempotent.

        Returns:
            True if it was running.
        """
        request = generation_pb2.AbortRequest()
        put(request, "request_id", request_id, "request_id")
        check_timeout("timeout_s", timeout_s)
        answers: list[bool] = []
        failure: OutriderError | None = None
        for address in self._connections.addresses:
            stub = self._connections.stub(address)
            try:
                with closing_told(lambda: Cancelled(_CLOSED, request_id=request_id)):
                    answer = await stub.Abort(request, timeout=timeout_s)
            except grpc.RpcError as rpc_error:
                error = from_rpc_error(rpc_error, request_id=request_id)
                failure = await self._connections.explained(error, address)
            else:
                answers.append(answer.was_running)
        if failure is not None and not answers:
            raise failure
        return any(answers)

    async def models(self, *, timeout_s: float = CALL_TIMEOUT_S) -> tuple[ModelInfo, ...]:
        """The target models and what they offer."""
        request = generation_pb2.ListModelsRequest()
        answer = await self._ask(
            lambda stub, left_s: stub.ListModels(request, timeout=left_s), timeout_s
        )
        return tuple(model_from_proto(model) for model in answer.models)

    async def tokenize(
        self,
        text: str | None = None,
        *,
        messages: Sequence[Message] | None = None,
        model: str = "",
        add_special_tokens: bool | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> tuple[int, ...]:
        """The token ids of a text or a conversation."""
        request = tokenize_to_proto(
            model=model, text=text, messages=messages, add_special_tokens=add_special_tokens
        )
        answer = await self._ask(
            lambda stub, left_s: stub.Tokenize(request, timeout=left_s), timeout_s
        )
        return tuple(answer.ids)

    async def detokenize(
        self,
        ids: Sequence[int],
        *,
        model: str = "",
        skip_special_tokens: bool | None = None,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> str:
        """The text of token ids; bytes that are not UTF-8 become U+FFFD."""
        request = detokenize_to_proto(model=model, ids=ids, skip_special_tokens=skip_special_tokens)
        answer = await self._ask(
            lambda stub, left_s: stub.Detokenize(request, timeout=left_s), timeout_s
        )
        return answer.text

    async def status(self, *, timeout_s: float = CALL_TIMEOUT_S) -> Status:
        """Who serves, and how busy they are."""
        request = generation_pb2.GetStatusRequest()
        answer = await self._ask(
            lambda stub, left_s: stub.GetStatus(request, timeout=left_s), timeout_s
        )
        return status_from_proto(answer)

    def start_trace(
        self,
        *,
        request_id: str = "",
        seconds: float = 60.0,
        nodes: bool = False,
        max_records: int = 0,
    ) -> AsyncRunningTrace:
        """Begins to record what every actor does, for a timeline.

        Args:
            request_id: A request, running or to come; the trace ends with it. Empty: the whole service.
            seconds: The trace ends after this time in any case.
            nodes: Records what became of each candidate, not only of how many.
            max_records: The trace ends when it holds so many; 0: the service's own limit.

        Raises:
            InvalidRequest: A value does not fit its field. `result` raises the other errors.
        """
        request = trace_request(
            request_id=request_id, seconds=seconds, nodes=nodes, max_records=max_records
        )
        return AsyncRunningTrace(self._connections, request)

    async def trace(
        self,
        *,
        request_id: str = "",
        seconds: float = 60.0,
        nodes: bool = False,
        max_records: int = 0,
    ) -> Timeline:
        """Records what every actor does, for a timeline, and waits for its end. Arguments: as of `start_trace`.

        Raises:
            OutriderError: By cause; see `errors.py`.
        """
        async with self.start_trace(
            request_id=request_id, seconds=seconds, nodes=nodes, max_records=max_records
        ) as trace:
            return await trace.result()

    async def health(self, service: str = "", *, timeout_s: float = CALL_TIMEOUT_S) -> Health:
        """What `grpc.health.v1` says; an unknown service is an answer, not an error."""
        request = health_pb2.HealthCheckRequest()
        put(request, "service", service, "service")

        async def check(_: GenerationServiceAsyncStub, left_s: float) -> Health:
            stub = health_pb2_grpc.HealthStub(self._connections.channel(self._connections.current))
            try:
                # the type stubs of the health stub leave its methods out
                answer = await stub.Check(request, timeout=left_s)  # type: ignore[attr-defined]
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    return Health.SERVICE_UNKNOWN
                raise
            return health_from_proto(answer)

        return await self._ask(check, timeout_s)

    async def _ask(
        self,
        call: Callable[[GenerationServiceAsyncStub, float], Awaitable[_Answer]],
        timeout_s: float,
    ) -> _Answer:
        """Makes a short call, at each address in turn while nobody answers. One that says nothing leaves time for the others."""
        deadline_s = time.monotonic() + check_timeout("timeout_s", timeout_s)
        num_addresses = len(self._connections.addresses)
        failures = 0
        while True:
            address = self._connections.current
            left_s = max(0.001, deadline_s - time.monotonic())
            num_left = max(1, num_addresses - failures)
            try:
                with closing_told(lambda: Cancelled(_CLOSED)):
                    return await call(self._connections.stub(address), left_s / num_left)
            except grpc.RpcError as rpc_error:
                error = from_rpc_error(rpc_error)
            failures += 1
            delay_s = self._retry.delay_s(
                failures, num_addresses=num_addresses, jitter=random.random()
            )
            is_over = failures >= self._retry.open_attempts * num_addresses
            is_over |= time.monotonic() + delay_s >= deadline_s
            is_silent = isinstance(error, DeadlineExceeded) and num_left > 1
            if not (isinstance(error, Unavailable) or is_silent) or is_over:
                raise await self._connections.explained(error, address)
            self._connections.rotate(address)
            await self._waits.sleep(delay_s)
