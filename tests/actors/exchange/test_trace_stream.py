"""The `Trace` call of an actor, on a stream that takes one message at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from outrider.actors.tracing.recorder import Recorder
from outrider.actors.tracing.trace_stream import Context, serve_trace
from outrider.v1 import target_pb2, trace_pb2

BOUND_S = 60.0


class OneAtATime:
    """A stream as gRPC's: what is being written goes on if its writer is cancelled, and nothing else may be written meanwhile."""

    def __init__(self) -> None:
        self.reports: list[trace_pb2.TraceReport] = []
        self.is_full = False
        self.began = asyncio.Event()
        self.has_room = asyncio.Event()
        self._is_writing = False

    async def write(self, report: trace_pb2.TraceReport) -> None:
        """Takes a message; waits for room while it is full."""
        assert not self._is_writing, "another message is being written"
        self._is_writing = True
        if self.is_full:
            self.began.set()
            await self.has_room.wait()
        self.reports.append(report)
        self._is_writing = False


async def test_the_end_in_the_middle_of_a_message_loses_nothing() -> None:
    """Whoever asked ends the trace while records go out slowly: those come, and what was recorded since."""
    recorder, stream = Recorder(), OneAtATime()

    async def commands() -> AsyncIterator[trace_pb2.TraceCommand]:
        yield trace_pb2.TraceCommand(start=trace_pb2.StartTrace())
        stream.is_full = True
        recorder.add(trace_pb2.TraceSpan(name="first"))
        await stream.began.wait()
        recorder.add(trace_pb2.TraceSpan(name="last"))
        asyncio.get_running_loop().call_soon(stream.has_room.set)

    async with asyncio.timeout(BOUND_S):
        await serve_trace(
            recorder,
            target_pb2.Hello(name="t"),
            "target",
            commands(),
            cast("Context", cast("Any", stream)),
        )
    records = [report.records for report in stream.reports if report.HasField("records")]
    assert [span.name for each in records for span in each.spans] == ["first", "last"]
