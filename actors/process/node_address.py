"""Where an actor listens and is reached, once it knows which Ray node it is on."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Listening(Protocol):
    """Settings of an actor that listens; a frozen dataclass."""

    @property
    def listen(self) -> str:
        """HOST:PORT; without a host, the node's own address is meant."""
        ...

    @property
    def advertise_host(self) -> str | None:
        """Host that others reach it at; None: the one of `listen`."""
        ...


SettingsT = TypeVar("SettingsT", bound=Listening)


def at_node(settings: SettingsT, node_host: str) -> SettingsT:
    """The settings of an actor on a node: it listens at the node's address where none is given, and is reached there if it
    listens at every address.

    Args:
        settings: As the supervisor made them.
        node_host: The node's address as others reach it, without brackets.
    """
    host, _, port = settings.listen.rpartition(":")
    if not host:
        return replace(settings, listen=_joined(node_host, port))  # type: ignore[type-var]  # dataclasses all
    if settings.advertise_host is None and _is_any(host):
        return replace(settings, advertise_host=node_host)  # type: ignore[type-var]  # dataclasses all
    return settings


def internal_listen(listen: str, node_host: str) -> str:
    """An internal address to bind, with the node's own host where none is given."""
    host, _, port = listen.rpartition(":")
    return listen if host else _joined(node_host, port)


def _joined(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False
