"""Ports of the helpers of our own Ray's node, chosen before they start instead of asked for afterwards.

Ray's process for a node starts two helpers, waits until each has written down the ports that it listens on, and ends itself
after 30 s without them, a time that cannot be set. On busy cores the helpers need longer. So their ports are chosen here, told
to them by options of `ray start`, and written down as they would: Ray does not wait.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OPTIONS = {
    "metrics_agent_port": "--dashboard-agent-grpc-port",
    "metrics_export_port": "--metrics-export-port",
    "dashboard_agent_listen_port": "--dashboard-agent-listen-port",
    "runtime_env_agent_port": "--runtime-env-agent-port",
}
"""Ray's name of each port, and the option that sets it."""

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


def write_down(ports: Mapping[str, int], session: Path) -> bool:
    """Writes the helpers' ports where Ray looks for them.

    Args:
        ports: By Ray's names, the keys of `OPTIONS`.
        session: The folder of Ray's session; need not be there yet.

    Returns:
        Whether it could be done: not before Ray's central process, the first of all, has written down its own.
    """
    from ray import _raylet

    raylet: Any = _raylet  # its stub leaves these out
    first = f"{raylet.GCS_SERVER_PORT_NAME}_"
    nodes = [path.name.removeprefix(first) for path in session.glob(f"{first}*")]
    for node in nodes:
        for name, port in ports.items():
            raylet.persist_port(str(session), node, name, port)
    return bool(nodes)
