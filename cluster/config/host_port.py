"""HOST:PORT."""

from __future__ import annotations

MAX_DIGITS = 5
"""Most digits of a port."""


def split_host_port(address: str) -> tuple[str, int]:
    """Host and port of an address; an IPv6 host stands in brackets.

    Raises:
        ValueError: It is not HOST:PORT, or the port is not in 0..65535.
    """
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare and not host.startswith("[")):
        raise ValueError(f"{address!r} is not HOST:PORT, as in 127.0.0.1:50051 or [::1]:50051")
    # Digits are counted first: beyond some thousands Python makes no number of them.
    is_number = port.isascii() and port.isdigit() and len(port) <= MAX_DIGITS
    if not is_number or int(port) > 65_535:
        raise ValueError(f"{address!r} has the port {port!r}; expected 0 to 65535")
    return bare, int(port)


def join_host_port(host: str, port: int) -> str:
    """The address of a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
