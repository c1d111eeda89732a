"""From the records of a coordinator to slices: requests on tracks of their own, text and writing on the coordinator's. Pure."""

from __future__ import annotations

from typing import Any, Protocol

from outrider.client.timeline.timeline_model import REQUESTS, Slice
from outrider.client.timeline.track_names import KINDS
from outrider.v1 import trace_pb2


class Make(Protocol):
    """Makes the slice of a record."""

    def __call__(
        self,
        record: trace_pb2.TraceRecord,
        track: str,
        args: dict[str, Any],
        *,
        process: str = "",
        name: str = "",
    ) -> Slice: ...


def convert(record: trace_pb2.TraceRecord, make: Make) -> None:
    """Makes the slice of one record."""
    args: dict[str, Any] = {"request": record.request, "index": record.index}
    if record.tokens:
        args["tokens"] = record.tokens
    track = f"request {record.request} {record.name}"
    match record.kind:
        case trace_pb2.TRACE_KIND_REQUEST:
            args |= {"name": record.name, "outcome": record.outcome}
            make(record, track, args, process=REQUESTS, name=f"request {record.request}")
        case trace_pb2.TRACE_KIND_DETOKENISE | trace_pb2.TRACE_KIND_WRITE:
            make(record, KINDS[record.kind], args)
        case _:
            if record.target:
                args["target"] = record.target
            make(record, track, args, process=REQUESTS)
