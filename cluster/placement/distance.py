"""How long a connection from this machine to others takes. Imports nothing heavy: it runs in small processes on every node."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence

CONNECTS = 10
"""Connections to each address, whose fastest counts as the round trip: on a busy machine most of them measure the wait for a processor."""

PAUSE_S = 0.01
"""Between two of them: what keeps a processor for a moment does not slow all of them down."""

CONNECT_S = 2.0
"""Bound on one of them."""


def round_trips(addresses: Sequence[tuple[str, int]]) -> list[float]:
    """Seconds that a connection to each address takes; infinite where there is none."""
    fastest = [_connect_s(address) for address in addresses]
    # Where nobody answers, trying again would take ten times the bound.
    answering = [number for number, seconds in enumerate(fastest) if math.isfinite(seconds)]
    for _ in range(CONNECTS - 1):
        time.sleep(PAUSE_S)
        latest = {number: _connect_s(addresses[number]) for number in answering}
        answering = [number for number, seconds in latest.items() if math.isfinite(seconds)]
        for number in answering:
            fastest[number] = min(fastest[number], latest[number])
    return fastest


def _connect_s(address: tuple[str, int]) -> float:
    began = time.perf_counter()
    try:
        socket.create_connection(address, timeout=CONNECT_S).close()
    except OSError:
        return float("inf")
    return time.perf_counter() - began
