"""Spans of requests for OpenTelemetry: request > queue, prefill, decode > rounds. Made when a request is over, from its milestones.

Nothing of OpenTelemetry is imported unless an endpoint is named, in the configuration or by the standard variables
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`). Sending is the business of the library's own thread.
Names and attributes follow the conventions for generative models (`gen_ai.*`) where they have one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import structlog

import outrider
from outrider.cluster.metrics.milestones import Milestones, SequenceTimes
from outrider.v1 import generation_pb2

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that name an endpoint."""

FLUSH_S = 2.0
"""How long the end of a coordinator waits for spans to be sent. The library itself tries for half a minute where nobody listens."""

HEADERS = ("traceparent", "tracestate")
"""Metadata of a call that say which trace it is part of (W3C Trace Context)."""

log = structlog.get_logger(__name__)


class Spans:
    """Makes and sends spans."""

    def __init__(self, exporter: SpanExporter, *, coordinator: str) -> None:
        """Args:
        exporter: Takes finished spans.
        coordinator: Name of the one that is asked.

        Raises:
            ImportError: OpenTelemetry is not installed.
        """
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        named = {"service.name": "outrider"} if "OTEL_SERVICE_NAME" not in os.environ else {}
        resource = Resource.create(
            {
                **named,
                "service.version": outrider.__version__,
                "service.instance.id": coordinator,
            }
        )
        # Of its own, not the global one: several coordinators may share a process.
        self._provider: TracerProvider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("outrider", outrider.__version__)
        # A request of forty rounds takes two milliseconds, which the event loop has not.
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="spans")

    def send(self, milestones: Milestones, outcome: str, now_ns: int) -> None:
        """Has the spans of a request that has ended made and sent. Returns at once.

        Args:
            milestones: Of the request.
            outcome: How it ended.
            now_ns: The present, on the clock of the milestones.
        """
        self._maker.submit(self._make, milestones, outcome, now_ns, time.time_ns() - now_ns)

    def close(self) -> None:
        """Sends what waits, for a bounded time. Blocks; not on the event loop."""
        ending = threading.Thread(target=self._end, name="spans-end", daemon=True)
        ending.start()
        ending.join(FLUSH_S)

    def _end(self) -> None:
        self._maker.shutdown(wait=True)
        self._provider.shutdown()

    def _make(self, milestones: Milestones, outcome: str, now_ns: int, to_unix_ns: int) -> None:
        try:
            self._request(milestones, outcome, now_ns, to_unix_ns)
        except Exception:
            log.exception("spans are lost", request_id=milestones.request_id)

    def _request(self, milestones: Milestones, outcome: str, now_ns: int, to_unix_ns: int) -> None:
        from opentelemetry import trace
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        root = self._tracer.start_span(
            "generate",
            context=TraceContextTextMapPropagator().extract(milestones.parent),
            kind=SpanKind.SERVER,
            start_time=milestones.began_ns + to_unix_ns,
            attributes={
                "gen_ai.operation.name": "text_completion",
                "gen_ai.usage.input_tokens": milestones.prompt_tokens,
                "outrider.request_id": milestones.request_id,
                "outrider.outcome": outcome,
            },
        )
        if root.is_recording():
            within = trace.set_span_in_context(root)
            for index, times in sorted(milestones.sequences.items()):
                for name, began_ns, ended_ns, attributes in _parts(times, now_ns):
                    child = self._tracer.start_span(
                        name,
                        context=within,
                        start_time=began_ns + to_unix_ns,
                        attributes={"outrider.sequence": index, **attributes},
                    )
                    if name == "decode":
                        self._rounds(child, times, to_unix_ns)
                    child.end(ended_ns + to_unix_ns)
            if outcome not in ("completed", "aborted", "cancelled"):
                root.set_status(Status(StatusCode.ERROR, outcome))
        root.end(now_ns + to_unix_ns)

    def _rounds(self, parent: Span, times: SequenceTimes, to_unix_ns: int) -> None:
        from opentelemetry import trace

        within = trace.set_span_in_context(parent)
        began_ns = times.rounds[0].end_ns if times.rounds else 0
        for one in times.rounds[1:]:
            child = self._tracer.start_span(
                "round",
                context=within,
                start_time=began_ns + to_unix_ns,
                attributes={"outrider.tokens": one.num_tokens},
            )
            child.end(one.end_ns + to_unix_ns)
            began_ns = one.end_ns


def open_spans(endpoint: str | None, *, coordinator: str) -> Spans | None:
    """Where spans go; None if nobody wants any.

    Args:
        endpoint: URL of an OTLP collector's gRPC port. None: as the standard variables say.
        coordinator: Name of the one that is asked.

    Raises:
        ValueError: The configuration names an endpoint, and OpenTelemetry is not installed.
    """
    is_wanted_by_variables = any(os.environ.get(name) for name in ENDPOINTS)
    is_disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_disabled or not (endpoint or is_wanted_by_variables):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        spans = Spans(OTLPSpanExporter(endpoint=endpoint), coordinator=coordinator)
    except ImportError as error:
        missing = (
            f"spans need OpenTelemetry ({error.name} is missing): pip install 'outrider[otel]'"
        )
        if endpoint:
            raise ValueError(f"service.otlp_endpoint: {missing}") from error
        # The variables are often set for everything on a machine.
        log.warning("no spans are sent", reason=missing)
        return None
    log.info("spans are sent", endpoint=endpoint or "as OTEL_* says")
    return spans


def parent_of(metadata: Iterable[tuple[str, str | bytes]]) -> Mapping[str, str]:
    """What a call says of the trace that it is part of."""
    return {key: value for key, value in metadata if key in HEADERS and isinstance(value, str)}


def _parts(
    times: SequenceTimes, now_ns: int
) -> Iterable[tuple[str, int, int, Mapping[str, str | int | float]]]:
    """Name, begin, end and attributes of the parts of a sequence; what was never reached is left out."""
    if times.queued_ns is not None:
        yield "queue", times.queued_ns, times.admitted_ns or now_ns, {}
    first_ns = times.rounds[0].end_ns if times.rounds else None
    if times.admitted_ns is not None:
        cached = times.completion.usage.cached_tokens if times.completion is not None else 0
        attributes: dict[str, str | int | float] = {
            "outrider.target": times.target,
            "outrider.cached_tokens": cached,
        }
        yield "prefill", times.admitted_ns, first_ns or now_ns, attributes
    if first_ns is not None:
        yield "decode", first_ns, times.last_ns or now_ns, _decoded(times)


def _decoded(times: SequenceTimes) -> dict[str, str | int | float]:
    found: dict[str, str | int | float] = {"gen_ai.usage.output_tokens": times.num_tokens}
    completion = times.completion
    if completion is not None:
        stats = completion.speculation
        reason = generation_pb2.FinishReason.Name(completion.finish_reason)
        found |= {
            "gen_ai.response.finish_reason": reason.removeprefix("FINISH_REASON_").lower(),
            "outrider.rounds": stats.rounds,
            "outrider.plain_passes": stats.plain_passes,
            "outrider.verified_tokens": stats.verified,
            "outrider.accepted_tokens": stats.accepted,
            "outrider.draft_wait_s": completion.timing.draft_wait_s,
        }
    return found
