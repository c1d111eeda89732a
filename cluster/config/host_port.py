"""HOST:PORT."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

MAX_DIGITS = 5
"""Most digits of a port."""


HOST = re.compile(r"[^\s/@\[\]?#]+")
"""What a host may look like: a name or an address."""

EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that stand for all addresses of a machine."""


def split_host_port(address: str) -> tuple[str, int]:
    """Host and port of an address; an IPv6 host stands in brackets.

    Raises:
        ValueError: It is not HOST:PORT, or the port is not in 0..65535.
    """
    host, colon, port = address.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not HOST.fullmatch(bare) or (":" in bare and not host.startswith("[")):
        raise ValueError(f"{address!r} is not HOST:PORT, as in 127.0.0.1:50051 or [::1]:50051")
    # Digits are counted first: beyond some thousands Python makes no number of them.
    is_number = port.isascii() and port.isdigit() and len(port) <= MAX_DIGITS
    if not is_number or int(port) > 65_535:
        raise ValueError(f"{address!r} has the port {port!r}; expected 0 to 65535")
    return bare, int(port)


def join_host_port(host: str, port: int) -> str:
    """The address of a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_host(host: str) -> bool:
    """Whether it is a host without a port; an IPv6 address may stand in brackets or not."""
    bare = _plain(host)
    return HOST.fullmatch(bare) is not None and (":" not in bare or _is_address(bare))


def is_same_host(one: str, other: str) -> bool:
    """Whether who listens at both listens at one address twice, as far as the names tell."""
    plain = {_plain(one), _plain(other)}
    return len(plain) == 1 or not plain.isdisjoint(EVERYWHERE)


def check_url(url: str) -> None:
    """Raises ValueError: a URL that names no host, or no port that there is."""
    try:
        parts = urlsplit(url)
        is_whole = is_host(parts.hostname or "") and parts.port != 0
    except ValueError:  # Of the port, or of brackets.
        is_whole = False
    if not is_whole:
        raise ValueError(f"is {url!r}; expected http://HOST:PORT, the port from 1 to 65535")


def _plain(host: str) -> str:
    """One spelling of a host's many."""
    bare = host.removeprefix("[").removesuffix("]").lower()
    if bare == "localhost":
        return "127.0.0.1"
    return str(ipaddress.ip_address(bare)) if _is_address(bare) else bare


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
