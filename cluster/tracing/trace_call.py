"""The public `Trace` call: what may be asked, and how much of it at a time. `running_trace` does the work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import grpc

from outrider.actors.tracing.recorder import Recorder
from outrider.cluster.requests.running_request import RunningRequest
from outrider.cluster.requests.served_models import ServedModels
from outrider.cluster.tracing.running_trace import CoordinatorTrace, Write
from outrider.cluster.validation.client_names import check_request_id
from outrider.cluster.validation.refusals import invalid
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import trace_pb2

MAX_TRACES = 4
"""Traces that run at a time; each is a stream from every actor."""

MAX_SECONDS = 600.0
"""Longest trace."""

MAX_RECORDS = 500_000
"""Records of one trace: about a minute and a half of the fastest decoding, some hundred megabytes at the client."""


class Tracing:
    """Every trace of one coordinator."""

    def __init__(
        self,
        recorder: Recorder,
        source: trace_pb2.TraceSource,
        links: ServedModels,
        requests: Mapping[str, RunningRequest],
    ) -> None:
        """Args:
        recorder: The coordinator's own.
        source: Who the coordinator is.
        links: The actors.
        requests: Those that run.
        """
        self._recorder = recorder
        self._source = source
        self._links = links
        self._requests = requests
        self._num_traces = 0

    async def run(self, request: trace_pb2.TraceRequest, write: Write) -> None:
        """Answers one call.

        Raises:
            Refusal: The request is wrong, too many traces run, or the request to trace did not run.
        """
        limit = check(request)
        with self._counted():
            trace = CoordinatorTrace(self._recorder, self._links, self._requests, request, limit)
            await trace.run(self._source, write)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._num_traces >= MAX_TRACES:
            raise Refusal(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{self._num_traces} traces run already, no more are allowed; wait until one has ended",
                retry_after_s=1.0,
            )
        self._num_traces += 1
        try:
            yield
        finally:
            self._num_traces -= 1


def check(request: trace_pb2.TraceRequest) -> int:
    """Refuses what cannot be traced. Returns the number of records to hold."""
    check_request_id(request.request_id)
    if not 0.0 < request.seconds <= MAX_SECONDS or math.isnan(request.seconds):
        raise invalid(
            "seconds", f"must be above 0 and at most {MAX_SECONDS:g}, got {request.seconds:g}"
        )
    if request.max_records > MAX_RECORDS:
        raise invalid("max_records", f"must be at most {MAX_RECORDS}, got {request.max_records}")
    return request.max_records or MAX_RECORDS
