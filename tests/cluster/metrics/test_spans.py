"""Spans of requests: their shape, their parent, and that a collector gets them over OTLP."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.cluster.front import Serve
from tests.cluster.metrics.page import Scraped
from tests.cluster.served.test_together import Together, ready, request

from outrider.cluster.gateway import gateway
from outrider.cluster.metrics import request_spans as module
from outrider.cluster.metrics.milestones import Milestones
from outrider.cluster.metrics.request_spans import ENDPOINTS, Spans, open_spans

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
MAX_TOKENS = 64


class Sent:
    """Spans that would go to a collector."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.spans = Spans(self.exporter, coordinator="coordinator")

    def finished(self) -> list[ReadableSpan]:
        """All of them."""
        self.spans.close()
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Coordinators that start from now on send spans to memory."""
    made = Sent()
    monkeypatch.setattr(gateway, "open_spans", lambda endpoint, *, coordinator: made.spans)
    return made


def within(span: ReadableSpan, spans: list[ReadableSpan]) -> list[ReadableSpan]:
    """The children of a span, by time."""
    own = span.context.span_id
    children = [s for s in spans if s.parent is not None and s.parent.span_id == own]
    return sorted(children, key=lambda s: s.start_time or 0)


async def test_a_request_is_a_tree_of_spans(sent: Sent, scraped: Scraped) -> None:
    """Request > queue, prefill, decode > rounds; each within its parent, and as many tokens as were sent."""
    asked = request(1, max_tokens=MAX_TOKENS)
    asked.request_id = "mine"
    _, _, completion = await scraped.together.generate(asked)
    spans = sent.finished()

    (root,) = [span for span in spans if span.parent is None]
    assert root.name == "generate"
    assert root.attributes is not None
    assert root.attributes["outrider.request_id"] == "mine"
    assert root.attributes["outrider.outcome"] == "completed"
    assert root.attributes["gen_ai.usage.input_tokens"] == 3
    parts = within(root, spans)
    assert [part.name for part in parts] == ["queue", "prefill", "decode"]
    decode = parts[-1]
    assert decode.attributes is not None
    assert decode.attributes["gen_ai.usage.output_tokens"] == MAX_TOKENS
    assert decode.attributes["gen_ai.response.finish_reason"] == "length"
    assert decode.attributes["outrider.accepted_tokens"] == completion.speculation.accepted
    rounds = within(decode, spans)
    assert {one.name for one in rounds} == {"round"}
    assert 1 <= len(rounds) < MAX_TOKENS
    for parent in (root, decode):
        for child in within(parent, spans):
            times = (parent.start_time, child.start_time, child.end_time, parent.end_time)
            known = [time for time in times if time is not None]
            assert known == sorted(times, key=lambda time: time or 0)


async def test_the_callers_trace_goes_on(sent: Sent, scraped: Scraped) -> None:
    """Who sends a `traceparent` finds the request below its own span."""
    call = scraped.together.front.stub.Generate(
        request(1, max_tokens=4), metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),)
    )
    async for _ in call:
        pass
    (root,) = [span for span in sent.finished() if span.name == "generate"]
    assert f"{root.context.trace_id:032x}" == TRACE
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == PARENT


async def test_a_refused_request_is_an_error(sent: Sent, scraped: Scraped) -> None:
    """With its status, and without parts that never came."""
    wrong = request(1)
    wrong.tokens.ids.append(10_000)
    with pytest.raises(grpc.aio.AioRpcError):
        await scraped.together.generate(wrong)
    (root,) = sent.finished()
    assert root.status.status_code.name == "ERROR"
    assert root.status.description in ("INVALID_ARGUMENT", "OUT_OF_RANGE")


async def test_a_request_that_finds_no_target_is_an_error(sent: Sent, serve: Serve) -> None:
    """In its caller's trace, as all others are."""
    front = await serve(codec=None)
    asked = request(1)
    asked.request_id = "mine"
    call = front.stub.Generate(
        asked, timeout=60.0, metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),)
    )
    with pytest.raises(grpc.aio.AioRpcError):
        await call.read()
    (root,) = sent.finished()
    assert root.attributes is not None
    assert root.attributes["outrider.request_id"] == "mine"
    assert (root.status.status_code.name, root.status.description) == ("ERROR", "UNAVAILABLE")
    assert f"{root.context.trace_id:032x}" == TRACE


def test_a_request_that_ended_in_the_queue_was_there(sent: Sent) -> None:
    """Until its end, and nothing of it came after."""
    waited = Milestones("r", 100)
    waited.sequences[0].queued_ns = 150
    sent.spans.send(waited, "cancelled", 900)
    spans = {span.name: span for span in sent.finished()}
    assert spans.keys() == {"generate", "queue"}
    assert spans["queue"].end_time == spans["generate"].end_time
    began, beginning = spans["queue"].start_time, spans["generate"].start_time
    assert began is not None
    assert beginning is not None
    assert began - beginning == 50


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """An OpenTelemetry collector."""

    def __init__(self) -> None:
        self.requests: queue.Queue[trace_service_pb2.ExportTraceServiceRequest] = queue.Queue()

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        """Takes spans."""
        self.requests.put(request)
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
def collector() -> Iterator[tuple[str, Collector]]:
    """Its URL, and what it gets."""
    made = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    add: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add(made, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}", made
    server.stop(0)


@pytest.mark.parametrize("variable", ["", *ENDPOINTS])
async def test_a_collector_gets_them_over_otlp(
    together: Together,
    serve: Serve,
    collector: tuple[str, Collector],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    """Named in the configuration or by a standard variable; what waits is sent when the coordinator ends."""
    url, taken = collector
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, url)
    front = await serve(
        codec=None,
        targets=(together.target_address,),
        otlp_endpoint=None if variable else url,
    )
    await ready(front, drafters=0)
    async for _ in front.stub.Generate(request(1, max_tokens=4)):
        pass
    await front.coordinator.stop(0.0)

    (resource,) = taken.requests.get(timeout=60.0).resource_spans
    attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert attributes["service.name"] == "outrider"
    assert attributes["service.instance.id"] == "coordinator"
    names = {span.name for scope in resource.scope_spans for span in scope.spans}
    assert {"generate", "queue", "prefill", "decode"} <= names


def test_the_end_does_not_wait_for_a_collector_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the library's exporter does: here it hangs until the test is over."""
    monkeypatch.setattr(module, "FLUSH_S", 0.05)
    over, hung = threading.Event(), threading.Event()

    class Hung(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            hung.set()
            over.wait(30.0)
            return super().export(spans)

    spans = Spans(Hung(), coordinator="c")
    spans.send(Milestones("r", 0), "completed", 1)
    spans.close()
    assert not over.is_set()
    assert hung.wait(60)
    over.set()


def test_nobody_asks_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an endpoint, or switched off by the standard variable."""
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert open_spans(None, coordinator="c") is None
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert open_spans("http://127.0.0.1:4317", coordinator="c") is None


def test_missing_packages_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A configured endpoint is an error; a variable, which may be meant for others, is not."""

    def missing(*_: object, **__: object) -> Spans:
        raise ImportError("no module", name="opentelemetry.sdk")

    monkeypatch.setattr(module, "Spans", missing)
    with pytest.raises(ValueError, match=r"service\.otlp_endpoint.*outrider\[otel\]"):
        open_spans("http://127.0.0.1:4317", coordinator="c")
    monkeypatch.setenv(ENDPOINTS[0], "http://127.0.0.1:4317")
    assert open_spans(None, coordinator="c") is None
