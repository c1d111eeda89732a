"""The node of our own Ray: Ray's own command, started as a child of the service, waited for, and ended.

It has a session of its own, so that signals to the service's process group do not reach it; everything of Ray is in that
session, also what has lost its parent. Its files, and what it says, lie in the service's private folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from outrider.cluster.process import processes
from outrider.cluster.process.processes import Processes
from outrider.cluster.ray.ray_ports import OPTIONS, free_ports, write_down

OBJECT_STORE_BYTES = 100 * 2**20
"""Ray's object store. No token passes through it; Ray refuses less than 75 MiB."""

PATIENCE_S = 180.0
"""Seconds for Ray's start. Five are usual; a minute was measured with a dozen processes for each core."""

POLL_S = 0.05
"""How often it is looked whether the node is up."""

LOOK_S = 2.0
"""How often it is looked whether the node's main process still runs; a look costs a tenth of a second."""

NICENESS = "0"
"""Niceness of the actors' processes. Ray's own choice is 15, as nice as the drafter's arithmetic: event loops, the target's
passes and drafting would all be alike, and behind every other program of the machine."""

VARIABLES = {
    "RAY_gcs_server_port_wait_time_s": str(int(PATIENCE_S)),
    "RAY_raylet_start_wait_time_s": str(int(PATIENCE_S)),
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(int(PATIENCE_S)),
    "RAY_agent_register_timeout_ms": str(int(PATIENCE_S * 1e3)),
    "RAY_worker_register_timeout_seconds": str(int(PATIENCE_S)),
    # How often it looks for the object store, which it has just started: else after a whole second, if not at once.
    "RAY_raylet_client_connect_timeout_milliseconds": str(int(POLL_S * 1e3)),
    "RAY_raylet_client_num_connect_attempts": str(int(PATIENCE_S / POLL_S)),
    # When it is ended, nothing of the service runs any more.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    "RAY_worker_niceness": NICENESS,
    # Ray's word for "this node is all there is": it takes 127.0.0.1 for its address, and so listens there only.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""Environment of the node, beside ours."""


class StartCancelled(Exception):
    """The caller did not want the service any more while it started."""


class NodeFailed(Exception):
    """The node did not come up, or ended while it was waited for; says why."""


class OwnNode:
    """Ray's node with all its processes. Invariant: they are those that `end` ends."""

    def __init__(
        self,
        folder: Path,
        *,
        num_cpus: int,
        resources: Mapping[str, float],
        has_dashboard: bool,
        has_log_monitor: bool,
    ) -> None:
        """Starts it, with this process's environment, and does not wait.

        Args:
            folder: The private folder. The thread that calls this has to live as long as the node.
            num_cpus: Logical CPUs.
            resources: Custom resources.
            has_dashboard: Whether Ray's dashboard is started.
            has_log_monitor: Whether actors' output can reach the service's.

        Raises:
            OSError: It cannot be started.
        """
        self._folder = folder
        self._known: Processes = frozenset()
        self._session = folder / "ray" / "session_latest"
        self._ports = dict(zip(OPTIONS, free_ports(len(OPTIONS)), strict=True))
        command = [
            *(sys.executable, "-P", "-m", "outrider.cluster.ray.node_command", str(os.getpid())),
            *("start", "--head", "--block", "--no-monitor", "--disable-usage-stats"),
            *("--log-style=record", "--log-color=false"),
            *("--node-ip-address=127.0.0.1", "--port=0"),
            *("--min-worker-port=0", "--max-worker-port=0"),
            *(f"{OPTIONS[name]}={port}" for name, port in self._ports.items()),
            # A folder inside ours, because Ray opens its own to everyone.
            f"--temp-dir={folder / 'ray'}",
            f"--object-store-memory={OBJECT_STORE_BYTES}",
            f"--num-cpus={num_cpus}",
            f"--resources={json.dumps(dict(resources))}",
            f"--include-dashboard={has_dashboard}",
            f"--include-log-monitor={has_log_monitor}",
        ]
        with (folder / "ray.log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                # Of gRPC's own lines, which take no notice of level and form of ours, errors are enough.
                env={"GRPC_VERBOSITY": "ERROR", **os.environ, **VARIABLES},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        """Whether the node's main process runs."""
        return processes.any_named("raylet", self.processes())

    def processes(self) -> Processes:
        """Every process of the node that was found now or earlier."""
        self._known |= processes.of_session(self._process.pid)
        return self._known

    def wait(self, *, is_cancelled: Callable[[], bool]) -> str:
        """Waits until the node is up. Returns its address, HOST:PORT.

        Args:
            is_cancelled: Whether the caller does not want to wait any more.

        Raises:
            StartCancelled: `is_cancelled` said so.
            NodeFailed: It has ended, or is not up after `PATIENCE_S`.
        """
        begun = looked = time.monotonic()
        is_told = has_begun = False
        while not (address := self._address()):
            if is_cancelled():
                raise StartCancelled
            if (code := self._exit_code()) is not None:
                raise NodeFailed(f"its command ended with exit code {code}; {self._last_words()}")
            is_told = is_told or write_down(self._ports, self._session)
            now = time.monotonic()
            if now - begun > PATIENCE_S:
                raise NodeFailed(f"it was not up within {PATIENCE_S:g} s; {self._last_words()}")
            if now - looked > LOOK_S:
                looked, is_alive = now, self.is_alive
                if has_begun and not is_alive:
                    raise NodeFailed(
                        f"the node's main process ended while it started; {self._last_words()}"
                    )
                has_begun = is_alive
            time.sleep(POLL_S)
        return address

    def end(self, *, patience_s: float) -> None:
        """Ends it. To be called once.

        Args:
            patience_s: How long its processes may take to end before they are asked, and again before they are killed.
        """
        self._process.terminate()
        processes.end(self.processes, patience_s=patience_s)
        self._process.wait()

    def _exit_code(self) -> int | None:
        """Of its command; None while that runs. Leaves it a zombie: so its pid, the session's number, stays its own."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self._process.pid, options)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _address(self) -> str:
        """What Ray's command notes last of all, for whoever wants to join; empty before."""
        try:
            return (self._folder / "ray" / "ray_current_cluster").read_text()
        except FileNotFoundError:
            return ""

    def _last_words(self) -> str:
        """What the node has said of its end: a fatal line of its main process, or else the last line of the command."""
        for name, is_told in (
            (self._session / "logs" / "raylet.err", lambda line: " C " in line),
            (self._folder / "ray.log", str.strip),
        ):
            if name.exists():
                lines = [
                    line for line in name.read_text(errors="replace").splitlines() if is_told(line)
                ]
                if lines:
                    return f"Ray said: {lines[-1].strip()}"
        return "Ray said nothing"
