"""One actor as a source of a trace: its records, and readings of its clock, for as long as the trace runs.

An actor that dies is told as lost; when it is back, it is another source.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from outrider.actors.rpc.closed_channel import ChannelClosed, telling_closed
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.target_link import TargetLink
from outrider.v1 import trace_pb2

OUTBOX_MESSAGES = 64
"""Messages that wait for the client. Beyond it the actors wait, and lose records when their own buffers are full."""

FIRST_PROBES = 8
"""Clock readings at once at the beginning: the quickest of them counts."""

PROBE_S = 0.5
"""Pause between later readings."""

RETRY_S = 0.05
"""Pause before an actor that is not there is looked for again."""

LAST_S = 2.0
"""Bound on waiting for an actor's last records."""

Link = TargetLink | DraftLink


class TraceRequests:
    """Messages of one trace on their way to the client."""

    def __init__(self) -> None:
        self.num_records = 0
        """Records so far."""
        self.ending = asyncio.Event()
        """Set when the sources are to send their last records."""
        self._queue: asyncio.Queue[trace_pb2.TraceResponse | None] = asyncio.Queue(OUTBOX_MESSAGES)
        self._num_sources = 0
        self._settled: set[int] = set()
        self._has_settled = asyncio.Event()

    def new_source(self) -> int:
        """A number for a source."""
        self._num_sources += 1
        return self._num_sources

    def settle(self, link: Link) -> None:
        """A link records, or cannot for now."""
        self._settled.add(id(link))
        self._has_settled.set()

    async def all_settled(self, links: Iterable[int], timeout_s: float) -> None:
        """Waits until these links have settled, within the bound."""
        wanted = set(links)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not wanted <= self._settled:
                    self._has_settled.clear()
                    await self._has_settled.wait()

    async def put(self, number: int, **event: Any) -> None:
        """Queues a message; waits while the client is behind."""
        response = trace_pb2.TraceResponse(number=number, **event)
        self.num_records += len(response.records.spans)
        await self._queue.put(response)

    async def get(self) -> trace_pb2.TraceResponse | None:
        """The next message; None after the last."""
        return await self._queue.get()

    async def close(self) -> None:
        """Nothing more comes."""
        await self._queue.put(None)


async def follow(
    link: Link, outbox: TraceRequests, clock_ns: Callable[[], int], *, nodes: bool
) -> None:
    """Records one actor until `outbox.ending`, also over its restarts.

    Args:
        link: The coordinator's link to the actor.
        outbox: Where messages go.
        clock_ns: The coordinator's clock.
        nodes: What became of each candidate node is wanted.
    """
    while not outbox.ending.is_set():
        if link.stub is None:
            outbox.settle(link)
        else:
            source = _Source(link, outbox, clock_ns)
            try:
                with telling_closed():
                    await source.run(nodes=nodes)
            except grpc.aio.AioRpcError as error:
                await source.lost(f"{error.code().name}: {error.details()}")
            except ChannelClosed as error:
                await source.lost(str(error))
            except (TimeoutError, asyncio.InvalidStateError):
                await source.lost("it did not answer in time")
            outbox.settle(link)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETRY_S):
                await outbox.ending.wait()


class _Source:
    """One call to one start of an actor."""

    def __init__(self, link: Link, outbox: TraceRequests, clock_ns: Callable[[], int]) -> None:
        self._link = link
        self._outbox = outbox
        self._clock_ns = clock_ns
        self._number: int | None = None

    async def run(self, *, nodes: bool) -> None:
        """Reads until the trace ends or the actor does.

        Raises:
            grpc.aio.AioRpcError: The stream broke.
            TimeoutError: The last records did not come in time.
            asyncio.InvalidStateError: The stream broke while something was asked.
        """
        stub = self._link.stub
        assert stub is not None, "only a link that is up is followed"
        call = stub.Trace()
        asking = asyncio.create_task(self._ask(call, nodes=nodes))
        reading = asyncio.create_task(self._read(call))
        ending = asyncio.create_task(self._outbox.ending.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                async with asyncio.timeout(LAST_S):
                    await reading
            reading.result()
        finally:
            for task in (asking, reading, ending):
                task.cancel()
            await asyncio.gather(asking, reading, ending, return_exceptions=True)
            call.cancel()

    async def lost(self, reason: str) -> None:
        """Tells that the source went away, if it ever was there."""
        if self._number is not None:
            await self._outbox.put(self._number, source_lost=reason)

    async def _ask(self, call: Any, *, nodes: bool) -> None:
        await call.write(trace_pb2.TraceCommand(start=trace_pb2.StartTrace(nodes=nodes)))
        count = 0
        while not self._outbox.ending.is_set():
            probe = trace_pb2.ClockReading(asked_ns=self._clock_ns())
            await call.write(trace_pb2.TraceCommand(probe=probe))
            count += 1
            pause_s = 0.01 if count < FIRST_PROBES else PROBE_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._outbox.ending.wait()
        await call.done_writing()

    async def _read(self, call: Any) -> None:
        async for report in call:
            returned_ns = self._clock_ns()
            match report.WhichOneof("report"):
                case "source":
                    self._number = self._outbox.new_source()
                    await self._outbox.put(self._number, source=report.source)
                    self._outbox.settle(self._link)
                case "records" if self._number is not None:
                    await self._outbox.put(self._number, records=report.records)
                case "reading" if self._number is not None:
                    report.reading.returned_ns = returned_ns
                    await self._outbox.put(self._number, reading=report.reading)
