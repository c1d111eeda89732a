"""Addresses and the options of a connection."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from ipaddress import ip_address

from outrider.client.connection.errors import InvalidRequest
from outrider.client.connection.wanted import shown, wrong

DEFAULT_ADDRESS = "127.0.0.1:50051"
"""Where `outrider serve` listens if it is not told otherwise."""

DEFAULT_PORT = 50051
"""The port of an address that names none."""

MAX_RESPONSE_BYTES = 16 * 1024 * 1024
"""Greatest size of a message from the service; a chunk with 20 alternatives for each of 64 tokens is below 20 kB."""

KEEPALIVE_TIME_MS = 30_000
"""A silent connection is probed this often while a call runs, so that a vanished host is noticed within a minute.
Below 10 s servers may take it for abuse."""

KEEPALIVE_TIMEOUT_MS = 10_000
"""A probe that is not answered within this time ends the connection."""

_ADDRESS = re.compile(
    r"(?P<host>\[[0-9a-fA-F:.]+(?:%[\w.-]+)?\]|[^\s:/\[\],\0\ud800-\udfff]+)(?::(?P<port>[0-9]{1,5}))?"
)
_UNIX = re.compile(r"unix:[^\0\ud800-\udfff]+")


def parse_addresses(addresses: str | Sequence[str]) -> tuple[str, ...]:
    """One or more `HOST[:PORT]`, as a list or separated by commas, as gRPC targets, each once.

    `unix:PATH` is taken as it is. An IPv6 host is written in brackets.

    Raises:
        InvalidRequest: An address cannot be read, or there is none.
    """
    is_list = isinstance(addresses, Sequence) and all(isinstance(one, str) for one in addresses)
    if not is_list:
        raise wrong("address", addresses, "HOST:PORT, or a list of such,")
    parts = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    if not parts:
        raise InvalidRequest("no address is given; HOST:PORT is needed", field="address")
    return tuple(dict.fromkeys(_parse_address(part.strip()) for part in parts))


def channel_options(address: str, connect_timeout_s: float) -> list[tuple[str, int]]:
    """The options of a channel.

    Args:
        address: Where to, as `parse_addresses` gives it.
        connect_timeout_s: Time for one attempt to connect; an attempt that takes longer counts as refused.
    """
    return [
        ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        # gRPC bounds one connection attempt by its "minimum reconnect backoff".
        ("grpc.min_reconnect_backoff_ms", max(100, round(connect_timeout_s * 1000))),
        # A restarted service is found again soon; the default waits grow to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # Each client has its own connections: closing one leaves no other's state behind.
        ("grpc.use_local_subchannel_pool", 1),
        # Retries are decided in `retry.py` alone.
        ("grpc.enable_retries", 0),
        # No proxy leads to this machine, though `http_proxy` is set for others; who means it sets `grpc_proxy`.
        ("grpc.enable_http_proxy", int(not _is_here(address) or "grpc_proxy" in os.environ)),
    ]


def _is_here(address: str) -> bool:
    """Whether an address is one of this machine alone."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parse_address(address: str) -> str:
    """One address as a gRPC target."""
    if _UNIX.fullmatch(address):
        return address
    match = _ADDRESS.fullmatch(address)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 1 <= port <= 65535:
        raise InvalidRequest(
            f"{shown(address)} is not an address; HOST:PORT is needed, for instance {DEFAULT_ADDRESS} or [::1]:50051",
            field="address",
        )
    return f"{match['host']}:{port}"
