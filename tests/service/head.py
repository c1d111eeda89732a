"""A Ray cluster of one node, with a job server that asks for a token."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from tests.service.processes import END_TIMEOUT_S, START_TIMEOUT_S, environment, until

RAY = str(Path(sys.executable).parent / "ray")

SCRIPT = f"""#!{sys.executable}
from outrider.client.cli import main
main()
"""
"""The `outrider` of the cluster's nodes, where nothing is installed."""


def free_port() -> int:
    """A port that is free at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Head:
    """A Ray cluster of one node with a job server."""

    dashboard: str
    variables: dict[str, str]

    def submit(self, *entrypoint: str) -> subprocess.CompletedProcess[str]:
        """Runs a job to its end."""
        command = [RAY, "job", "submit", "--address", self.dashboard, "--", *entrypoint]
        return subprocess.run(
            command, env=self.variables, capture_output=True, text=True, timeout=200, check=False
        )


@contextmanager
def ray_head() -> Iterator[Head]:
    """`ray start --head --block` on loopback, with a token and the resource `target_node`; ended by its own process."""
    # Not under the test's folder, whose name is too long for Ray's sockets.
    folder = Path(tempfile.mkdtemp(prefix="head-", dir="/tmp"))
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    (folder / "outrider").write_text(SCRIPT)
    (folder / "outrider").chmod(0o700)
    port, dashboard = free_port(), free_port()
    variables = environment(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(folder / "token"),
        RAY_USAGE_STATS_ENABLED="0",
        # Ray's word for "one node is all there is": lets it listen on loopback.
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        RAY_ADDRESS=f"127.0.0.1:{port}",
        PATH=os.pathsep.join((str(folder), os.environ.get("PATH", ""))),
    )
    command = [
        RAY,
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        f"--dashboard-port={dashboard}",
        "--dashboard-host=127.0.0.1",
        "--include-dashboard=true",
        "--num-cpus=4",
        '--resources={"target_node": 1}',
        "--object-store-memory=100000000",
        f"--temp-dir={folder / 'ray'}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=variables, stdout=log, stderr=log, start_new_session=True
        )
    family: list[psutil.Process] = []
    try:
        until(lambda: answers(dashboard), timeout_s=START_TIMEOUT_S, what="Ray's job server")
        yield Head(f"http://127.0.0.1:{dashboard}", variables)
        family = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(END_TIMEOUT_S)
        for member in family:
            if member.is_running():
                member.kill()
        shutil.rmtree(folder, ignore_errors=True)


def answers(port: int) -> bool:
    """Whether someone listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
