"""How long a connection from this machine to others takes. Imports nothing heavy: it runs in small processes on every node."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Sequence

CONNECTS = 10
"""Connections whose fastest counts as the round trip: on a busy machine most of them measure the wait for a processor."""

CONNECT_S = 2.0
"""Bound on one of them."""


def round_trips(addresses: Sequence[tuple[str, int]]) -> list[float]:
    """Seconds that a connection to each address takes; infinite where there is none."""
    return [_round_trip_s(address) for address in addresses]


def _round_trip_s(address: tuple[str, int]) -> float:
    fastest = float("inf")
    for _ in range(CONNECTS):
        seconds = _connect_s(address)
        if math.isinf(seconds):  # Nobody answers: to try ten times would take ten times the bound.
            break
        fastest = min(fastest, seconds)
    return fastest


def _connect_s(address: tuple[str, int]) -> float:
    began = time.perf_counter()
    try:
        socket.create_connection(address, timeout=CONNECT_S).close()
    except OSError:
        return float("inf")
    return time.perf_counter() - began
