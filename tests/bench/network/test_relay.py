"""The relay carries every byte, in order, and refuses what it cannot carry."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from bench.network.relay import Relay

WAIT_S = 20.0


@pytest.fixture
def echo() -> Iterator[int]:
    """Port of a server that sends back what one connection sends."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def _connect(relay: Relay, port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", relay.port), timeout=WAIT_S)
    line.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
    assert line.recv(256).startswith(b"HTTP/1.1 200")
    return line


def _receive(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = line.recv(65536)
        assert part, f"the connection ended after {len(data)} of {size} bytes"
        data += part
    return data


def test_everything_arrives_in_order(echo: int) -> None:
    """Also while the delay falls, when later bytes could overtake."""
    sent = [bytes([number]) * 1000 for number in range(20)]
    with Relay(0.02) as relay, _connect(relay, echo) as line:
        for number, part in enumerate(sent):
            relay.delay_s = 0.02 - 0.001 * number
            line.sendall(part)
        assert _receive(line, 20_000) == b"".join(sent)
        assert relay.bytes_up == relay.bytes_down == 20_000


def test_the_end_is_passed_on(echo: int) -> None:
    """Who connected learns that the other side has closed."""
    with Relay() as relay, _connect(relay, echo) as line:
        line.shutdown(socket.SHUT_WR)
        assert line.recv(16) == b""


def test_a_cut_breaks_what_is_open_and_nothing_else(echo: int) -> None:
    """Who is connected reads the end; the next one is carried."""
    with Relay() as relay, socket.create_server(("127.0.0.1", 0)) as quiet:
        with _connect(relay, quiet.getsockname()[1]) as line:
            relay.cut()
            assert line.recv(16) == b""
        with _connect(relay, echo) as line:
            line.sendall(b"again")
            assert _receive(line, 5) == b"again"


@pytest.mark.parametrize(
    ("request_line", "status"),
    [(b"GET / HTTP/1.1\r\n\r\n", b"405"), (b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n", b"502")],
)
def test_what_cannot_be_carried_is_refused(request_line: bytes, status: bytes) -> None:
    """Another method, and a port where nobody listens."""
    with (
        Relay() as relay,
        socket.create_connection(("127.0.0.1", relay.port), timeout=WAIT_S) as line,
    ):
        line.sendall(request_line)
        assert line.recv(64).split(b" ")[1] == status
