"""A TCP relay that delays: every byte comes out a constant time after it went in, in the order in which it came.

It is an HTTP proxy that knows CONNECT, so that a process is led through it by an environment variable (`grpc_proxy`) and the
product needs to know nothing of it. The delay may be changed while connections are open; a shorter one never lets later bytes
overtake earlier ones. Counts the bytes of each direction: what really is on the wire, framing and headers included.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from types import TracebackType
from typing import Self

CHUNK = 65536
"""Bytes read at once."""

MAX_WAITING = 64 * 1024 * 1024
"""Bytes under way in one direction, at most; then the sender is made to wait."""

START_S = 10.0
"""Bound on starting and stopping the thread."""


class Relay:
    """A relay in a thread of its own, so that the caller need not have an event loop."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        """One way, in seconds, for what comes in from now on."""
        self.bytes_up = 0
        """From those who connected to us."""
        self.bytes_down = 0
        """To them."""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._is_ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead a process's gRPC connections through here."""
        return {"grpc_proxy": f"http://127.0.0.1:{self.port}", "no_grpc_proxy": "", "no_proxy": ""}

    def cut(self) -> None:
        """Breaks every connection, with what is under way; new ones may be made at once."""

        def cancel() -> None:
            for task in self._open:
                task.cancel()

        self._loop.call_soon_threadsafe(cancel)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._is_ready.wait(START_S) or self._failure is not None:
            raise RuntimeError(f"the relay did not start: {self._failure!r}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        stop = self._stop
        if stop is not None:
            self._loop.call_soon_threadsafe(stop.set)
        self._thread.join(START_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - `__enter__` raises it
            self._failure = error
        finally:
            self._is_ready.set()
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None, "asyncio runs this as a task"
            self._open.add(task)
            # Cut, it ends as if the other side had closed: asyncio would write of a cancelled task that it failed.
            with contextlib.suppress(asyncio.CancelledError):
                await self._connect(reader, writer)
            self._open.discard(task)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        await self._stop.wait()
        server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, address, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
            host, _, port = address.rpartition(":")
            if method != "CONNECT" or not port.isdigit():
                writer.write(b"HTTP/1.1 405 only CONNECT\r\n\r\n")
                return
            far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            writer.write(b"HTTP/1.1 502 cannot connect\r\n\r\n")
            return
        else:
            writer.write(b"HTTP/1.1 200 connected\r\n\r\n")
            ways = [
                asyncio.create_task(self._pass_on(reader, far_writer, is_up=True)),
                asyncio.create_task(self._pass_on(far_reader, writer, is_up=False)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                far_writer.close()
        finally:
            writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_up: bool
    ) -> None:
        """Takes bytes in at once and lets them out when they are due."""
        waiting: deque[tuple[float, bytes]] = deque()
        news, room = asyncio.Event(), asyncio.Event()
        room.set()
        size = 0

        async def let_out() -> None:
            nonlocal size
            while True:
                while not waiting:
                    news.clear()
                    await news.wait()
                due, data = waiting[0]
                left = due - self._loop.time()
                if left > 0.0:
                    await asyncio.sleep(left)
                waiting.popleft()
                if not data:
                    return
                size -= len(data)
                if size <= MAX_WAITING:
                    room.set()
                writer.write(data)
                await writer.drain()

        out = asyncio.create_task(let_out())
        try:
            with contextlib.suppress(ConnectionError):
                while not out.done():
                    await room.wait()
                    data = await reader.read(CHUNK)
                    if is_up:
                        self.bytes_up += len(data)
                    else:
                        self.bytes_down += len(data)
                    last = waiting[-1][0] if waiting else 0.0
                    waiting.append((max(self._loop.time() + self.delay_s, last), data))
                    news.set()
                    if not data:
                        break
                    size += len(data)
                    if size > MAX_WAITING:
                        room.clear()
                await out
        finally:
            out.cancel()
            await asyncio.gather(out, return_exceptions=True)
