"""A scripted generation service, in this process, behind real gRPC on loopback.

Its model says a fixed text for each seed, one token a UTF-8 byte, so that a token can hold part of a character. What it
streams depends on prompt, seed and position only, as the real service's output does.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from outrider.v1 import generation_pb2, generation_pb2_grpc, sampling_pb2, trace_pb2

STORY = "Das Boot fährt über den See; 世界 ist weit, größer als man denkt. " * 4
CHUNK_TOKENS = 3

QUEUED_S = 0.5
"""Seconds between the word that a request waits for a slot and what comes then."""


@dataclass(kw_only=True)
class Failure:
    """One status to answer a call with."""

    code: grpc.StatusCode
    details: str = "scripted"
    field: str = ""
    retry_after_s: float = 0.0
    after_tokens: int | None = None
    """Output tokens to send first; None fails before the admission."""

    is_queued: bool = False
    """Tells first that the request waits for a slot."""


@dataclass(kw_only=True)
class FakeService(generation_pb2_grpc.GenerationServiceServicer):
    """Answers by script and remembers what it was asked."""

    name: str = "fake"
    failures: list[Failure] = field(default_factory=list)
    """Taken one a Generate call; after the last one calls succeed."""

    requests: list[generation_pb2.GenerateRequest] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    stall_after: int | None = None
    """Output tokens after which streams wait until they are cancelled or `go_on` is set."""

    stall_from: int | None = None
    """Calls after which the next ones wait, before anything is sent, as above."""

    abort_stalls: bool = False
    """Abort calls wait until they are cancelled or `go_on` is set."""

    aborting: threading.Event = field(default_factory=threading.Event)
    """Set when an Abort call has arrived."""

    status_failures: list[Failure] = field(default_factory=list)
    """Taken one a GetStatus call."""

    trace_requests: list[trace_pb2.TraceRequest] = field(default_factory=list)
    trace_responses: list[trace_pb2.TraceResponse] = field(default_factory=list)
    """What a Trace call says."""

    trace_failures: list[Failure] = field(default_factory=list)
    """Taken one a Trace call."""

    trace_stalls: bool = False
    """Trace calls go on until they are cancelled."""

    ended: threading.Event = field(default_factory=threading.Event)
    """Set when a Generate call has been cancelled by the other side, or passed its deadline."""

    began: threading.Event = field(default_factory=threading.Event)
    """Set when a Generate call has arrived."""

    go_on: threading.Event = field(default_factory=threading.Event)
    plain_differs: bool = False
    """Unlike the real service: decodes something else when speculation is off."""

    has_chat_template: bool = True
    away: tuple[str, ...] = ()
    """Models that the service knows and that have no target now."""

    model_fingerprint: str = "f00d"
    """Of the model that is served; requests for another one are refused."""

    address: str = ""
    kill: Callable[[], None] = lambda: None
    """Ends the whole server at once, its streams in mid-air."""

    _arriving: threading.Lock = field(default_factory=threading.Lock)
    """Calls that arrive together are counted one after the other."""

    def output(self, seed: int, *, index: int = 0, max_tokens: int = 24) -> bytes:
        """The whole output for a seed."""
        text = STORY.encode()
        start = (seed * 7 + index * 3) % 11
        return (text[start:] + text[:start])[:max_tokens]

    def Generate(
        self,
        request: generation_pb2.GenerateRequest,
        context: grpc.ServicerContext,
    ) -> Iterator[generation_pb2.GenerateResponse]:
        with self._arriving:
            self.requests.append(request)
            number = len(self.requests)
        self.began.set()
        is_over = threading.Event()
        context.add_callback(lambda: None if is_over.is_set() else self.ended.set())
        try:
            yield from self._events(request, context, number)
        except GeneratorExit:
            raise
        except BaseException:
            is_over.set()
            raise
        if context.is_active():
            is_over.set()

    def _events(
        self,
        request: generation_pb2.GenerateRequest,
        context: grpc.ServicerContext,
        number: int,
    ) -> Iterator[generation_pb2.GenerateResponse]:
        if self.stall_from is not None and number > self.stall_from:
            while context.is_active() and not self.go_on.wait(0.02):
                pass
            if not context.is_active():
                return
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and failure.is_queued:
            context.send_initial_metadata((("outrider-queued", "1"),))
            # gRPC's asyncio client drops it where the end comes at the same time.
            self.go_on.wait(QUEUED_S)
        if failure is not None and failure.after_tokens is None:
            fail(context, failure)
        if request.model_fingerprint not in ("", self.model_fingerprint):
            exchanged = grpc.StatusCode.FAILED_PRECONDITION
            fail(context, Failure(code=exchanged, details="exchanged", field="model_fingerprint"))
        sampling = request.sampling
        seed = sampling.seed if sampling.HasField("seed") else 41
        if request.HasField("resume") and sampling.n > 1:
            wrong = grpc.StatusCode.INVALID_ARGUMENT
            fail(context, Failure(code=wrong, details="needs sampling.n = 1", field="resume"))
        if request.model not in ("", "demo"):
            fail(
                context,
                Failure(code=grpc.StatusCode.NOT_FOUND, details="no such model", field="model"),
            )
        yield generation_pb2.GenerateResponse(
            admission=generation_pb2.Admission(
                request_id=request.request_id,
                model="demo",
                seed=seed,
                prompt_tokens=len(request.text) or len(request.tokens.ids) or 5,
                drafters=["draft-small", "draft-tiny"],
                model_fingerprint=self.model_fingerprint,
            )
        )
        sent = 0
        for index in range(sampling.n or 1):
            whole = self.output(seed, index=index, max_tokens=sampling.max_tokens or 24)
            if self.plain_differs and not request.speculation.enabled:
                whole = whole[::-1]
            position = len(request.resume.ids)
            assert bytes(request.resume.ids) == whole[:position]
            while position < len(whole):
                end = min(position + CHUNK_TOKENS, len(whole))
                if failure is not None and failure.after_tokens is not None:
                    end = min(end, position + failure.after_tokens - sent)
                    if end == position:
                        fail(context, failure)
                if self.stall_after is not None and position >= self.stall_after:
                    while context.is_active() and not self.go_on.wait(0.02):
                        pass
                    if not context.is_active():
                        return
                yield chunk(index, whole, position, end)
                sent += end - position
                position = end
            if failure is not None and sent == failure.after_tokens:
                fail(context, failure)
            yield completion(index, whole, request)

    def Abort(
        self, request: generation_pb2.AbortRequest, context: grpc.ServicerContext
    ) -> generation_pb2.AbortResponse:
        self.aborted.append(request.request_id)
        self.aborting.set()
        while self.abort_stalls and context.is_active() and not self.go_on.wait(0.02):
            pass
        return generation_pb2.AbortResponse(was_running=request.request_id == "running")

    def ListModels(
        self, request: generation_pb2.ListModelsRequest, context: grpc.ServicerContext
    ) -> generation_pb2.ListModelsResponse:
        verifiers = [sampling_pb2.VERIFIER_COUPLED, sampling_pb2.VERIFIER_MCSD_WITH_REPLACEMENT]
        return generation_pb2.ListModelsResponse(
            models=[
                generation_pb2.TargetModel(
                    name="demo",
                    vocab_size=256,
                    max_context=512,
                    eos_token_ids=[0],
                    verifiers=verifiers,
                    drafters=[
                        generation_pb2.DrafterModel(
                            name="draft-small",
                            method="autoregressive",
                            verifiers=verifiers[:1],
                            ready=True,
                        )
                    ],
                    has_chat_template=self.has_chat_template,
                    model_fingerprint=self.model_fingerprint,
                    tokenizer_fingerprint="beef",
                )
            ]
        )

    def Tokenize(
        self, request: generation_pb2.TokenizeRequest, context: grpc.ServicerContext
    ) -> generation_pb2.TokenizeResponse:
        if request.model not in ("", "demo", *self.away):
            context.abort(grpc.StatusCode.NOT_FOUND, f"model {request.model!r} is not served here")
        text = request.text or "".join(turn.content for turn in request.chat.messages)
        return generation_pb2.TokenizeResponse(ids=list(text.encode()))

    def Detokenize(
        self, request: generation_pb2.DetokenizeRequest, context: grpc.ServicerContext
    ) -> generation_pb2.DetokenizeResponse:
        return generation_pb2.DetokenizeResponse(text=bytes(request.ids).decode(errors="replace"))

    def Trace(
        self, request: trace_pb2.TraceRequest, context: grpc.ServicerContext
    ) -> Iterator[trace_pb2.TraceResponse]:
        self.trace_requests.append(request)
        if self.trace_failures:
            fail(context, self.trace_failures.pop(0))
        yield from self.trace_responses
        while self.trace_stalls and context.is_active():
            self.go_on.wait(0.02)

    def GetStatus(
        self, request: generation_pb2.GetStatusRequest, context: grpc.ServicerContext
    ) -> generation_pb2.GetStatusResponse:
        if self.status_failures:
            fail(context, self.status_failures.pop(0))
        return generation_pb2.GetStatusResponse(
            version="0.0.fake",
            uptime_s=12.5,
            running=1,
            waiting=2,
            finished=3,
            accepting=True,
            actors=[
                generation_pb2.ActorStatus(
                    name=self.name,
                    role="target",
                    address=self.address,
                    incarnation=7,
                    ready=True,
                    model="demo",
                    sessions=1,
                    capacity=8,
                    busy=0.25,
                    pid=123,
                )
            ],
        )


def fail(context: grpc.ServicerContext, failure: Failure) -> None:
    """Ends a call with the failure's status and details. Does not return."""
    status = status_pb2.Status(code=failure.code.value[0], message=failure.details)
    if failure.field:
        violation = error_details_pb2.BadRequest.FieldViolation(field=failure.field)
        packed = any_pb2.Any()
        packed.Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        status.details.append(packed)
    if failure.retry_after_s:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(failure.retry_after_s * 1e9))
        packed = any_pb2.Any()
        packed.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status.details.append(packed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(failure.code, failure.details)


def certain(whole: bytes, length: int) -> str:
    """The text that the first tokens make certain: whole characters only."""
    return whole[:length].decode(errors="ignore")


def chunk(index: int, whole: bytes, start: int, end: int) -> generation_pb2.GenerateResponse:
    """The tokens of one chunk: drafted but for the last."""
    text = certain(whole, end)[len(certain(whole, start)) :]
    if end == len(whole):
        text = whole.decode(errors="replace")[len(certain(whole, start)) :]
    tokens = [
        generation_pb2.Token(
            id=whole[position],
            origin=generation_pb2.ORIGIN_DRAFTER,
            drafter=position % 2,
            logprob=-0.5,
        )
        for position in range(start, end - 1)
    ]
    tokens.append(generation_pb2.Token(id=whole[end - 1], origin=generation_pb2.ORIGIN_TARGET))
    return generation_pb2.GenerateResponse(
        index=index, chunk=generation_pb2.Chunk(text=text, tokens=tokens)
    )


def completion(
    index: int, whole: bytes, request: generation_pb2.GenerateRequest
) -> generation_pb2.GenerateResponse:
    """The end of a sequence."""
    return generation_pb2.GenerateResponse(
        index=index,
        completion=generation_pb2.Completion(
            finish_reason=generation_pb2.FINISH_REASON_LENGTH,
            usage=generation_pb2.Usage(prompt_tokens=5, completion_tokens=len(whole)),
            speculation=generation_pb2.SpeculationStats(
                rounds=8,
                plain_passes=1,
                proposed=40,
                verified=30,
                accepted=16,
                reached_by_depth=[8, 6],
                accepted_by_depth=[7, 3],
                mean_tokens_per_pass=2.5,
                wire_bytes=640,
            ),
            timing=generation_pb2.Timing(
                queue_s=0.001, prefill_s=0.002, verify_s=0.01, first_token_s=0.004, total_s=0.02
            ),
        ),
    )


def kill(server: grpc.Server) -> None:
    """Ends a server without grace."""
    server.stop(None).wait(5)


MakeFake = Callable[[str], FakeService]


@pytest.fixture
def make_fake() -> Iterator[MakeFake]:
    """Starts scripted services, by name; each listens at its `address`."""
    servers: list[tuple[grpc.Server, FakeService, ThreadPoolExecutor]] = []

    def make(name: str) -> FakeService:
        service = FakeService(name=name)
        pool = ThreadPoolExecutor(8)
        server = grpc.server(pool)
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(service, server)
        servicer = health.HealthServicer()
        servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        servicer.set("draining", health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        service.kill = lambda: kill(server)
        server.start()
        servers.append((server, service, pool))
        return service

    yield make
    for server, service, pool in servers:
        service.go_on.set()
        server.stop(0.2).wait(5)
        pool.shutdown(wait=True)


@pytest.fixture
def fake(make_fake: MakeFake) -> FakeService:
    """One scripted service."""
    return make_fake("fake")


@pytest.fixture
def failure() -> type[Failure]:
    """Makes failures for a service's script."""
    return Failure


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address on loopback where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def mute_port() -> Iterator[str]:
    """An address that accepts connections and never says anything."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield f"127.0.0.1:{listener.getsockname()[1]}"
