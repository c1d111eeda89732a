"""One trace that runs at a coordinator: follows every actor, takes in what the coordinator records itself, and ends in time.

Nothing here waits without a bound: an actor that does not answer costs its track, a client that does not read costs records,
which are counted where they are lost. What an actor sent before it died is kept.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping

import grpc

import outrider
from outrider.actors.tracing.recorder import Recorder, Tap
from outrider.actors.tracing.trace_stream import FLUSH_S, batches
from outrider.cluster.requests.running_request import RunningRequest
from outrider.cluster.requests.served_models import ServedModels
from outrider.cluster.tracing.trace_source import Link, TraceRequests, follow
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import trace_pb2

START_S = 2.0
"""Bound on waiting until every actor records. One that is late joins later."""

LINGER_S = 0.2
"""For this time after the end of a request, what belongs to it still comes in."""

END_S = 3.0
"""Bound on waiting for the last records of the actors."""

SHOWN_CHARS = 8
"""Characters of a request's name that a trace of the whole service shows, and never more than half of them. Who knows a name can
abort the request."""

Write = Callable[[trace_pb2.TraceResponse], Awaitable[None]]


class CoordinatorTrace:
    """One trace."""

    def __init__(
        self,
        recorder: Recorder,
        links: ServedModels,
        requests: Mapping[str, RunningRequest],
        request: trace_pb2.TraceRequest,
        limit: int,
    ) -> None:
        self._recorder = recorder
        self._links = links
        self._request = request
        self._limit = limit
        self._requests = requests
        self._outbox = TraceRequests()
        self._followers: dict[int, asyncio.Task[None]] = {}
        self._reason = "time"
        self._was_seen = False

    async def run(self, source: trace_pb2.TraceSource, write: Write) -> None:
        tap = self._recorder.open()
        tasks: list[asyncio.Task[None]] = []
        try:
            own = trace_pb2.TraceSource()
            own.CopyFrom(source)
            own.start_ns = self._recorder.clock_ns()
            own.pid = os.getpid()
            self._follow_new()
            await self._outbox.all_settled(self._followers, START_S)
            await write(
                trace_pb2.TraceResponse(
                    started=trace_pb2.TraceStarted(
                        clock_ns=self._recorder.clock_ns(),
                        unix_ns=time.time_ns(),
                        version=outrider.__version__,
                        emulated=self._links.first.emulated,
                    )
                )
            )
            await write(trace_pb2.TraceResponse(source=own))
            for running in self._requests.values():
                for span in running.recording.before():
                    tap.put(span)
            tasks = [
                asyncio.create_task(self._watch(tap)),
                asyncio.create_task(self._write_all(write)),
            ]
            async with asyncio.timeout(self._request.seconds + 2 * END_S):
                await self._until_over(tasks)
        except TimeoutError:
            # The client does not read: nothing can be told to it.
            raise Refusal(
                grpc.StatusCode.DEADLINE_EXCEEDED, "the trace was not read in time"
            ) from None
        finally:
            self._recorder.close(tap)
            for task in (*tasks, *self._followers.values()):
                task.cancel()
            await asyncio.gather(*tasks, *self._followers.values(), return_exceptions=True)
        if self._request.request_id and not self._was_seen:
            raise Refusal(
                grpc.StatusCode.NOT_FOUND,
                f"request_id {self._request.request_id!r} did not run within "
                f"{self._request.seconds:g} s; begin the trace before the request, or while it runs",
                field="request_id",
            )
        ended = trace_pb2.TraceEnded(reason=self._reason, clock_ns=self._recorder.clock_ns())
        await write(trace_pb2.TraceResponse(ended=ended))

    async def _until_over(self, tasks: list[asyncio.Task[None]]) -> None:
        """Waits for the watch, which ends the followers and puts the end mark, and for the writer."""
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    async def _watch(self, tap: Tap) -> None:
        """Takes in what the coordinator records itself, and ends the trace when it is whole."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._request.seconds
        while (now := loop.time()) < until:
            await asyncio.sleep(min(FLUSH_S, until - now))
            self._follow_new()
            if await self._flush(tap):
                self._reason = "request"
                until = min(until, loop.time() + LINGER_S)
            if self._outbox.num_records >= self._limit:
                self._reason = "records"
                break
        self._outbox.ending.set()
        if self._followers:
            await asyncio.wait(self._followers.values(), timeout=END_S)
        for running in self._requests.values():
            for span in running.recording.so_far():
                tap.put(span)
        await self._flush(tap)
        await self._outbox.close()

    async def _flush(self, tap: Tap) -> bool:
        """Passes on what the coordinator recorded. True if the request to trace has ended."""
        is_over = False
        for batch in batches(self._recorder, tap):
            shown = [span for span in batch.spans if self._is_shown(span)]
            is_over |= any("outcome" in span.args.words for span in shown)
            del batch.spans[:]
            batch.spans.extend(map(self._masked, shown))
            self._was_seen |= bool(shown)
            await self._outbox.put(0, records=batch)
        return is_over and bool(self._request.request_id)

    def _is_shown(self, span: trace_pb2.TraceSpan) -> bool:
        wanted = self._request.request_id
        return not wanted or span.owner.name == wanted

    def _masked(self, span: trace_pb2.TraceSpan) -> trace_pb2.TraceSpan:
        name = span.owner.name
        if self._request.request_id or not name:
            return span
        masked = trace_pb2.TraceSpan()
        masked.CopyFrom(span)
        masked.owner.name = name[: min(SHOWN_CHARS, len(name) // 2)] + "…"
        return masked

    async def _write_all(self, write: Write) -> None:
        while (response := await self._outbox.get()) is not None:
            await write(response)

    def _follow_new(self) -> None:
        links: list[Link] = [*self._links.targets.values(), *self._links.drafters.values()]
        for link in links:
            if id(link) not in self._followers:
                self._followers[id(link)] = asyncio.create_task(
                    follow(link, self._outbox, self._recorder.clock_ns, nodes=self._request.nodes)
                )
