"""Ports of our own Ray's helpers, chosen before they start instead of asked for afterwards.

Ray's process for a node starts two helpers, waits until each has written down the ports that it listens on, and ends itself
after 30 s without them, a time that cannot be set. On busy cores the helpers need longer. So the ports are chosen and written
down here; the helpers take them when they come, and Ray does not wait.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import socket
from collections.abc import Iterator
from typing import Any

CHOICES = range(12_000, 32_000)
"""Below the ports that Linux gives to outgoing connections, so that none of those takes one in the meantime."""

MAX_TRIES = 1_000
"""Ports that are tried before the machine counts as full."""


def free_ports(number: int) -> list[int]:
    """Different ports of loopback on which nobody listens at this moment.

    Raises:
        OSError: None is found.
    """
    found: list[int] = []
    for port in random.sample(CHOICES, MAX_TRIES):
        if len(found) == number:
            break
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    if len(found) < number:
        raise OSError(f"no {number} free ports among {MAX_TRIES} of {CHOICES} on 127.0.0.1")
    return found


@contextlib.contextmanager
def told_beforehand() -> Iterator[None]:
    """Inside, `ray.init` starts a node whose helpers' ports are chosen here."""
    from ray import _raylet
    from ray._private import parameter, services

    raylet: Any = _raylet  # its stub leaves these out
    names = (
        raylet.METRICS_AGENT_PORT_NAME,
        raylet.METRICS_EXPORT_PORT_NAME,
        raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
        raylet.RUNTIME_ENV_AGENT_PORT_NAME,
    )
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    parameters: Any = parameter.RayParams
    module: Any = services
    init, start_raylet = parameters.__init__, module.start_raylet

    def init_with_ports(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, **ports})

    def start_raylet_told(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(start_raylet).bind(*args, **kwargs).arguments
        for name, port in ports.items():
            raylet.persist_port(given["session_dir"], given["node_id"], name, port)
        return start_raylet(*args, **kwargs)

    parameters.__init__, module.start_raylet = init_with_ports, start_raylet_told
    try:
        yield
    finally:
        parameters.__init__, module.start_raylet = init, start_raylet
