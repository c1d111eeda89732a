"""A client of many streams for `bench.suites.service.fanout_suite`, in a process of its own that answers lines of JSON, see `bench.running.child`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from bench.running.host import costs
from outrider.actors.process.logs import LogSettings, configure_logs
from outrider.client import AsyncClient, SamplingOptions, TextChunk
from outrider.client.connection import event_loop

REQUEST_S = 600.0
"""Bound on a request."""


class _Reader:
    """Reads streams and counts what came."""

    def __init__(self, address: str) -> None:
        self._client = AsyncClient(address, timeout_s=REQUEST_S)
        self._tasks: list[asyncio.Task[None]] = []
        self._more = asyncio.Event()
        self.tokens = 0
        self.events = 0

    def start(self, streams: int, sampling: SamplingOptions) -> None:
        """Asks for so many streams."""
        self.tokens = self.events = 0
        self._tasks = [asyncio.create_task(self._read(sampling)) for _ in range(streams)]

    async def until(self, tokens: int) -> None:
        """Waits until so many tokens have come since `start`."""
        self._wanted = tokens
        while self.tokens < tokens:
            self._more.clear()
            await self._more.wait()
            for task in self._tasks:
                if task.done():
                    task.result()

    async def end(self) -> None:
        """Waits for the end of every stream."""
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Disconnects."""
        for task in self._tasks:
            task.cancel()
        await self._client.close()

    async def _read(self, sampling: SamplingOptions) -> None:
        async with self._client.stream("Once upon a time", sampling=sampling) as stream:
            async for event in stream:
                if isinstance(event, TextChunk):
                    self.tokens += len(event.tokens)
                    self.events += 1
                    if self.tokens >= self._wanted:
                        self._more.set()

    _wanted = 1 << 62


async def _serve() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    configure_logs(LogSettings(), actor="bench")
    reader: _Reader | None = None
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        answer: Any = {}
        match order["do"]:
            case "connect":
                reader = _Reader(order["address"])
            case "start":
                assert reader is not None
                sampling = SamplingOptions(max_tokens=500_000, seed=1, **order["sampling"])
                reader.start(order["streams"], sampling)
            case "until":
                assert reader is not None
                await reader.until(order["tokens"])
            case "end":
                assert reader is not None
                await reader.end()
        answer = {**costs(), "events": reader.events if reader is not None else 0}
        print(json.dumps(answer), file=answers, flush=True)
    if reader is not None:
        await reader.close()


if __name__ == "__main__":
    event_loop.run(_serve())
