"""Ray's own command `ray start`, as a child of the service. Started by `own_node`:

    python -m outrider.cluster.ray.node_command PID_OF_THE_SERVICE start --head --block ...

It ends with the service, whatever ends that, and starts nothing that one machine has no use for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
"""From `sys/prctl.h`: which signal this process gets when the thread that started it ends."""

HOOK = "RAY_START_HOOK"
"""Environment variable: the function to which `ray start` shows what it is about to start."""


def main() -> None:
    """Runs Ray's command with the arguments behind the first."""
    end_with(int(sys.argv.pop(1)))
    from ray.scripts import scripts

    os.environ[HOOK] = f"{__spec__.name}.{without_extras.__name__}"
    scripts.main()


def end_with(parent: int) -> None:
    """Has this process ended by SIGTERM, which Ray's command hears, when its parent ends; at once if that is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit("the service is gone")


def without_extras(parameters: Any, is_head: bool) -> None:
    """Takes back two defaults of `ray start` for which it has no option; called by Ray.

    A server for Ray's remote clients, on port 10001, and the very port 8265 for the dashboard instead of the next free one.
    """
    del os.environ[HOOK]  # its children inherit the rest
    parameters.ray_client_server_port = None
    parameters.dashboard_port = None


if __name__ == "__main__":
    main()
