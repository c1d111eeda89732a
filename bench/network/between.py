"""What lies between drafter and target in a benchmark of delays: a relay, or a link to another host."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.network.network import HERE, Network, round_trip_s
from bench.network.relay import Relay
from bench.running.assembly import LOOPBACK, Assembly
from bench.running.bench_service import DRAFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What lies between drafter and target."""

    set_delay: Callable[[float], None]
    """Seconds, one way."""

    round_trip_s: Callable[[Assembly], float]
    """Measures it."""

    bytes_so_far: Callable[[], int]
    """Both ways, headers of the transport included; 0 where nobody counts."""

    options: Mapping[str, Any]
    """Of the `Assembly`."""

    name: str


Betweens = Callable[[], Any]
"""Makes a context manager of a `Between`; each of the two services has one of its own."""


@contextmanager
def over_relay() -> Iterator[Between]:
    """A relay on loopback."""
    with Relay() as relay:

        def set_delay(delay_s: float) -> None:
            relay.delay_s = delay_s

        yield Between(
            set_delay=set_delay,
            round_trip_s=lambda _: echo_s(relay),
            bytes_so_far=lambda: relay.bytes_up + relay.bytes_down,
            options={"drafter_environment": relay.environment},
            name="relay",
        )


def over_network(network: Network, far: str) -> Betweens:
    """A link to another host, the same for both services."""

    @contextmanager
    def between() -> Iterator[Between]:
        yield Between(
            set_delay=lambda delay_s: network.set_link(far, delay_s=delay_s),
            round_trip_s=lambda assembly: round_trip_s(assembly.addresses[DRAFTER]),
            bytes_so_far=lambda: 0,
            options={
                "target_host": network.hosts[HERE].address,
                "drafter_host": network.hosts[far].address,
                "drafter_prefix": network.hosts[far].prefix,
            },
            name="tun",
        )

    return between


def echo_s(relay: Relay, *, times: int = 11) -> float:
    """Median seconds for some bytes through a relay and back."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(64):
                    connection.sendall(data)

        thread = threading.Thread(target=echo, daemon=True)
        thread.start()
        took = []
        with socket.create_connection((LOOPBACK, relay.port), timeout=10.0) as line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.sendall(f"CONNECT {LOOPBACK}:{port} HTTP/1.1\r\n\r\n".encode())
            line.recv(256)
            for _ in range(times):
                began = time.perf_counter()
                line.sendall(b"x" * 32)
                received = 0
                while received < 32:
                    received += len(line.recv(64))
                took.append(time.perf_counter() - began)
        thread.join(10.0)
    return statistics.median(took)
