"""How long a connection from this machine to others takes. Imports nothing heavy: it runs in small processes on every node."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

CONNECTS = 3
"""Connections whose fastest counts as the round trip."""

CONNECT_S = 2.0
"""Bound on one of them."""


def round_trips(addresses: Sequence[tuple[str, int]]) -> list[float]:
    """Seconds that a connection to each address takes; infinite where there is none."""
    return [min(_connect_s(address) for _ in range(CONNECTS)) for address in addresses]


def _connect_s(address: tuple[str, int]) -> float:
    began = time.perf_counter()
    try:
        socket.create_connection(address, timeout=CONNECT_S).close()
    except OSError:
        return float("inf")
    return time.perf_counter() - began
