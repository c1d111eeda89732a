"""`GET /metrics` as Prometheus, people and strangers ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from outrider.cluster.metrics import metrics_endpoint
from outrider.cluster.metrics.metrics_endpoint import MAX_REQUEST_BYTES, MetricsEndpoint

PAGE = "outrider_up 1.0\n"


class Serving:
    """An endpoint with a page."""

    def __init__(self) -> None:
        self.is_broken = False
        self.endpoint = MetricsEndpoint("127.0.0.1:0", self.page)
        self.address = ""

    async def page(self) -> str:
        """It, unless it is broken."""
        if self.is_broken:
            raise RuntimeError("no page today")
        return PAGE

    async def ask(self, text: bytes) -> tuple[str, str]:
        """Status line and body of the answer."""
        host, _, port = self.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(text)
        async with asyncio.timeout(60.0):
            answer = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        head, _, body = answer.partition("\r\n\r\n")
        return head, body


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    """Serves on a free port."""
    made = Serving()
    await made.endpoint.start()
    made.address = made.endpoint.address
    yield made
    await made.endpoint.stop()


async def test_get_and_head(serving: Serving) -> None:
    """The page with its type and length; HEAD is the same without it."""
    head, body = await serving.ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "Content-Type: text/plain; version=0.0.4; charset=utf-8" in head
    assert f"Content-Length: {len(PAGE)}" in head
    assert body == PAGE
    same, nothing = await serving.ask(b"HEAD /metrics HTTP/1.0\r\n\r\n")
    assert (same, nothing) == (head, "")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"hello\r\n\r\n", "400"),
        (b"GET /metrics SPDY/3\r\n\r\n", "400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST_BYTES + b"\r\n\r\n", "431"),
    ],
)
async def test_what_is_no_such_request_is_told_so(
    serving: Serving, text: bytes, status: str
) -> None:
    """In one line, and the next one is served."""
    head, body = await serving.ask(text)
    assert head.split(" ")[1] == status
    assert body.endswith("\n")
    _, page = await serving.ask(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert page == PAGE


async def test_half_a_request_is_not_waited_for(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends nothing more is sent away."""
    monkeypatch.setattr(metrics_endpoint, "READ_S", 0.05)
    head, _ = await serving.ask(b"GET /metrics HT")
    assert head.split(" ")[1] == "408"


async def test_too_many_at_a_time_are_turned_away(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound holds for connections that say nothing, too."""
    monkeypatch.setattr(metrics_endpoint, "MAX_CONNECTIONS", 1)
    host, _, port = serving.address.rpartition(":")
    _, idle = await asyncio.open_connection(host, int(port))
    await asyncio.sleep(0.05)
    head, _ = await serving.ask(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert head.split(" ")[1] == "503"
    idle.close()
    await idle.wait_closed()


async def test_the_end_does_not_wait_for_who_says_nothing(serving: Serving) -> None:
    """A connection that is open is closed, and long before its own bound."""
    host, _, port = serving.address.rpartition(":")
    reader, idle = await asyncio.open_connection(host, int(port))
    await asyncio.sleep(0.05)
    await serving.endpoint.stop()
    assert await reader.read() == b""
    idle.close()
    await idle.wait_closed()


async def test_a_page_that_fails_is_a_500(serving: Serving) -> None:
    """With the reason, and the endpoint goes on."""
    serving.is_broken = True
    head, body = await serving.ask(b"GET /metrics HTTP/1.1\r\n\r\n")
    assert head.split(" ")[1] == "500"
    assert "no page today" in body


async def test_a_port_that_is_taken_is_told_with_its_key(serving: Serving) -> None:
    """Before anything else is started."""
    with pytest.raises(OSError, match=r"service\.metrics"):
        await MetricsEndpoint(serving.address, serving.page).start()
