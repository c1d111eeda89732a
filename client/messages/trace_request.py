"""Taking a trace: the request for it, and what its messages come to. No sockets; `async_trace` has them."""

from __future__ import annotations

import grpc

from outrider.client.connection.errors import OutriderError, from_rpc_error
from outrider.client.connection.wanted import number, wrong
from outrider.client.messages.wire_values import put
from outrider.client.timeline.assemble import assemble
from outrider.client.timeline.timeline_model import Timeline
from outrider.client.timeline.trace_collect import TraceCollector
from outrider.v1 import trace_pb2

MAX_TRACE_S = 600.0
"""Longest trace, as the service allows it."""

GRACE_S = 15.0
"""Time beyond the trace itself for starting it and for the last records; then the call has failed."""

SETTLE_S = 0.3
"""After `stop` the trace goes on for so long: what happened before is then on its way."""

STOPPED = "it was stopped"


def trace_request(
    *, request_id: str, seconds: float, nodes: bool, max_records: int
) -> trace_pb2.TraceRequest:
    """The request for a trace.

    Raises:
        InvalidRequest: A value does not fit its field.
    """
    needed = f"a number above 0 and at most {MAX_TRACE_S:g}"
    if not 0 < number("seconds", seconds, needed) <= MAX_TRACE_S:
        raise wrong("seconds", seconds, needed)
    request = trace_pb2.TraceRequest()
    given = {
        "request_id": request_id,
        "seconds": seconds,
        "nodes": nodes,
        "max_records": max_records,
    }
    for name, value in given.items():
        put(request, name, value, name)
    return request


class Reception:
    """The messages of one trace, as they come."""

    def __init__(self, request: trace_pb2.TraceRequest) -> None:
        self.request = request
        self.has_started = False
        self.is_stopping = False
        self.failure: OutriderError | None = None
        """Why there is no trace; None if there is one."""
        self._collector = TraceCollector()

    def add(self, response: trace_pb2.TraceResponse) -> None:
        """Takes a message in."""
        self.has_started = True
        self._collector.add(response)

    def stopped(self) -> None:
        """The caller ended it."""
        self._collector.ended = STOPPED

    def broke(self, error: grpc.RpcError) -> None:
        """The call failed. What came before is kept, unless the service says that there is nothing to show."""
        if self.is_stopping:
            self.stopped()
            return
        failure = from_rpc_error(error, request_id=self.request.request_id or None)
        if self.has_started and failure.code is not grpc.StatusCode.NOT_FOUND:
            self._collector.ended = f"the stream broke: {failure.message}"
        else:
            self.failure = failure

    @property
    def num_records(self) -> int:
        """Records so far."""
        return self._collector.num_records

    def timeline(self) -> Timeline:
        """What came of it.

        Raises:
            OutriderError: Nothing did.
        """
        if self.failure is not None:
            raise self.failure
        return assemble(self._collector, request_id=self.request.request_id)
