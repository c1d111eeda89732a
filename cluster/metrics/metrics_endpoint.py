"""`GET /metrics` over HTTP: just enough of it for Prometheus and for people. One request a connection, bounded in size, time and number;
answers are the page or a status line with a reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from outrider.cluster.config.host_port import join_host_port, split_host_port

PATH = "/metrics"

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The text exposition format that every Prometheus reads."""

READ_S = 5.0
"""Seconds that a client has to send its request, and again to read the answer."""

MAX_REQUEST_BYTES = 16 * 1024
"""Request line and headers together."""

MAX_CONNECTIONS = 32
"""At a time; more are turned away. Prometheus needs one."""

log = structlog.get_logger(__name__)


class MetricsEndpoint:
    """Serves one page."""

    def __init__(self, listen: str, page: Callable[[], Awaitable[str]]) -> None:
        """Args:
        listen: HOST:PORT; port 0 takes a free one.
        page: Makes the page; bounded in time by itself.
        """
        self.address = ""
        """Where it serves, once it does."""
        self._host, self._port = split_host_port(listen)
        self._page = page
        self._server: asyncio.Server | None = None
        self._answers: set[asyncio.Task[None]] = set()
        """One for each connection."""

    async def start(self) -> None:
        """Serves.

        Raises:
            OSError: It cannot be bound.
        """
        listen = join_host_port(self._host, self._port)
        try:
            self._server = await asyncio.start_server(
                self._answer, self._host, self._port, limit=MAX_REQUEST_BYTES
            )
        except OSError as error:
            raise OSError(
                f"cannot serve metrics on {listen} (service.metrics): is the port taken? ({error})"
            ) from error
        port = self._server.sockets[0].getsockname()[1]
        self.address = join_host_port(self._host, port)
        log.info("metrics", url=f"http://{self.address}{PATH}")

    async def stop(self) -> None:
        """Ends. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for answer in self._answers:
                answer.cancel()
            if self._answers:
                await asyncio.wait(self._answers, timeout=READ_S)
            # From Python 3.12 on this waits for connections.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), READ_S)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        self._answers.add(own)
        own.add_done_callback(self._answers.discard)
        try:
            if len(self._answers) > MAX_CONNECTIONS:
                answer = _response("503 Service Unavailable", "too many connections\n")
            else:
                answer = await self._respond(reader)
            writer.write(answer)
            await asyncio.wait_for(writer.drain(), READ_S)
        except (OSError, TimeoutError):
            pass  # The client is gone, or does not read.
        finally:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), READ_S)

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_S)
        except (asyncio.IncompleteReadError, TimeoutError):
            return _response("408 Request Timeout", "no whole request came in time\n")
        except asyncio.LimitOverrunError:
            return _response("431 Request Header Fields Too Large", "the request is too large\n")
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response("400 Bad Request", "this is no HTTP/1.x request\n")
        method, path = words[0], words[1].partition("?")[0]
        if path != PATH:
            return _response("404 Not Found", f"metrics are at {PATH}\n")
        if method not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "use GET\n", "Allow: GET, HEAD\r\n")
        try:
            page = await self._page()
        except Exception as error:
            log.exception("the page of metrics failed")
            return _response("500 Internal Server Error", f"{error!r}\n")
        return _response("200 OK", page, kind=CONTENT_TYPE, is_head=method == "HEAD")


def _response(
    status: str,
    text: str,
    headers: str = "",
    *,
    kind: str = "text/plain; charset=utf-8",
    is_head: bool = False,
) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{headers}"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else body)
