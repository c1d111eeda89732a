"""The `Trace` call of an actor, the same for targets and drafters: records out, the clock on demand.

On the event loop. The call ends when the other side ends its requests: then what is left goes out, and recording stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc

from outrider.actors.tracing.recorder import Recorder, Tap
from outrider.v1 import target_pb2, trace_pb2

FLUSH_S = 0.1
"""How often records leave. Less sends more messages, more makes the end of a trace wait."""

BATCH_RECORDS = 128
"""Spans in one message, at most: some ten kilobytes, and a megabyte where every node of many sessions is told."""

START_TIMEOUT_S = 5.0
"""Bound on waiting for the first command."""

Context = grpc.aio.ServicerContext[Any, Any]


async def serve_trace(
    recorder: Recorder,
    hello: target_pb2.Hello,
    role: str,
    requests: AsyncIterator[trace_pb2.TraceCommand],
    context: Context,
) -> None:
    """Answers one call.

    Args:
        recorder: What the actor records to.
        hello: Who the actor is.
        role: `target` or `drafter`.
        requests: The commands.
        context: Where reports go.
    """
    commands = aiter(requests)
    start = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_TIMEOUT_S):
            start = await anext(commands, None)
    if start is None or not start.HasField("start"):
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the first command must be start")
    tap = recorder.open(nodes=start.start.nodes)
    # Two tasks write, and gRPC takes one message at a time.
    lock = asyncio.Lock()
    try:
        await context.write(
            trace_pb2.TraceReport(
                source=trace_pb2.TraceSource(
                    name=hello.name,
                    role=role,
                    incarnation=hello.incarnation,
                    pid=os.getpid(),
                    start_ns=recorder.clock_ns(),
                )
            )
        )
        ended = asyncio.Event()
        flushing = asyncio.create_task(_flush_until(ended, recorder, tap, context, lock))
        try:
            await _answer_probes(recorder, commands, context, lock)
            # Not cancelled: a write that is broken off is still under way for gRPC, and takes no other beside it.
            ended.set()
            await flushing
        finally:
            flushing.cancel()
            await asyncio.gather(flushing, return_exceptions=True)
    finally:
        recorder.close(tap)


async def _answer_probes(
    recorder: Recorder,
    commands: AsyncIterator[trace_pb2.TraceCommand],
    context: Context,
    lock: asyncio.Lock,
) -> None:
    async for command in commands:
        received_ns = recorder.clock_ns()
        if not command.HasField("probe"):
            continue
        async with lock:
            reading = trace_pb2.ClockReading(
                asked_ns=command.probe.asked_ns,
                received_ns=received_ns,
                answered_ns=recorder.clock_ns(),
            )
            await context.write(trace_pb2.TraceReport(reading=reading))


async def _flush_until(
    ended: asyncio.Event, recorder: Recorder, tap: Tap, context: Context, lock: asyncio.Lock
) -> None:
    """Sends what there is now and again, the last time after the end."""
    is_last = False
    while not is_last:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await ended.wait()
        is_last = ended.is_set()
        for batch in batches(recorder, tap):
            async with lock:
                await context.write(trace_pb2.TraceReport(records=batch))


def batches(recorder: Recorder, tap: Tap) -> Iterator[trace_pb2.TraceRecords]:
    """What a tap holds, in messages of bounded size; one without spans if it holds nothing."""
    until_ns = recorder.clock_ns()
    current = recorder.current
    is_last = False
    while not is_last:
        spans = tap.take(BATCH_RECORDS)
        is_last = len(spans) < BATCH_RECORDS
        yield trace_pb2.TraceRecords(
            spans=spans,
            # Whoever reads half of it must not think that the rest was idle time.
            until_ns=until_ns if is_last else spans[-1].start_ns,
            lost=tap.num_lost,
            current=current if is_last else None,
        )
