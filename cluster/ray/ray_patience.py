"""How long Ray's own processes may take to start: as long as a busy machine needs, and no longer than the user wants.

Ray waits 30 s for its processes. Two busy cores need more when Ray's files are not in memory yet. Most of the waits are
environment variables; the one for the node itself is a constant in a function, so the question that the function asks again
and again is what waits here. (`ray_ports` does away with another one.)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_S = 180.0
"""Seconds for each step of Ray's start. Three are usual; a minute was measured with a dozen processes for each core."""

POLL_S = 0.2
"""How often Ray is asked whether the node is up."""

VARIABLES = {
    "RAY_gcs_server_port_wait_time_s": str(int(PATIENCE_S)),
    # One question to Ray's central process: short, so that a signal is heard between two of them.
    "RAY_raylet_start_wait_time_s": "2",
    "RAY_agent_register_timeout_ms": str(int(PATIENCE_S * 1e3)),
    "RAY_worker_register_timeout_seconds": str(int(PATIENCE_S)),
}
"""Environment of the processes that Ray starts, and of the one that starts them."""


class StartCancelled(Exception):
    """The caller did not want the service any more while it started."""


class NodeEnded(Exception):
    """What was waited for has ended. No RuntimeError: Ray would go on asking."""


@contextlib.contextmanager
def patient(*, is_cancelled: Callable[[], bool], is_alive: Callable[[], bool]) -> Iterator[None]:
    """Inside, `ray.init` waits for its node until it is up, dead, given up, or `PATIENCE_S` have passed.

    Args:
        is_cancelled: Whether the caller does not want to wait any more.
        is_alive: Whether there is still something to wait for.

    Raises:
        StartCancelled: `is_cancelled` said so.
        NodeEnded: `is_alive` said no.
    """
    from ray._private import services

    module: Any = services
    ask = module.get_node

    def wait(*args: Any, **kwargs: Any) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask(*args, **kwargs)
            except RuntimeError:
                if is_cancelled():
                    raise StartCancelled from None
                if not is_alive():
                    raise NodeEnded(
                        "Ray's own process for this node ended while it started"
                    ) from None
                if time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)

    module.get_node = wait
    try:
        yield
    finally:
        module.get_node = ask
