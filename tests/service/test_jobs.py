"""A service as a job on a running Ray cluster that asks for a token."""

from __future__ import annotations

import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from tests.service.conftest import save_tables
from tests.service.processes import (
    END_TIMEOUT_S,
    START_TIMEOUT_S,
    environment,
    until,
)

RAY = str(Path(sys.executable).parent / "ray")

JOB = """
import sys
from pathlib import Path
from outrider.client import Client, SamplingOptions, SpeculationOptions
from outrider.cluster.config import load_config
from outrider.cluster.launch import start_service

with start_service(load_config(Path(sys.argv[1]))) as service:
    with Client(service.address, timeout_s=60) as client:
        sampling = SamplingOptions(max_tokens=20, seed=3, ignore_eos=True)
        outputs = [
            client.generate(tokens=[1, 2, 3], sampling=sampling, speculation=SpeculationOptions(enabled=on))
            for on in (False, True)
        ]
    roles = sorted(actor.role.value for actor in service.actors())
    print("PIDS", *(actor.pid for actor in service.actors()))
print("EQUAL" if [t.id for t in outputs[0].tokens] == [t.id for t in outputs[1].tokens] else "DIFFERENT", len(outputs[0].tokens), roles)
"""

pytestmark = pytest.mark.timeout(300)


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


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """`ray start --head --block` on loopback, with a token and the resource `target_node`; ended by its own process."""
    # Not under the test's folder, whose name is too long for Ray's sockets.
    folder = Path(tempfile.mkdtemp(prefix="head-", dir="/tmp"))
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    port, dashboard = free_port(), free_port()
    variables = environment(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(folder / "token"),
        RAY_USAGE_STATS_ENABLED="0",
        # Ray's word for "one node is all there is": lets it listen on loopback.
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
        RAY_ADDRESS=f"127.0.0.1:{port}",
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


def test_job_starts_a_service_in_the_cluster_and_leaves_no_actor(
    head: Head, tmp_path: Path
) -> None:
    """It joins with the cluster's token, is placed on a custom resource, serves, and ends what it started."""
    target, draft = save_tables(tmp_path)
    config = {
        "service": {"listen": "127.0.0.1:0"},
        "cluster": {"address": "auto"},
        "targets": [{"model": f"tabular:{target}", "resources": {"target_node": 1}}],
        "drafters": [{"model": f"tabular:{draft}"}],
    }
    (tmp_path / "service.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "job.py").write_text(JOB)
    result = head.submit(sys.executable, str(tmp_path / "job.py"), str(tmp_path / "service.yaml"))

    assert "EQUAL 20 ['coordinator', 'drafter', 'target']" in result.stdout, result.stdout
    assert result.returncode == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("PIDS "))
    pids = [int(pid) for pid in line.split()[1:]]
    assert len(pids) == 3
    until(
        lambda: not any(psutil.pid_exists(pid) for pid in pids),
        timeout_s=30.0,
        what="the end of the job's actors",
    )


def test_wrong_token_is_refused(head: Head) -> None:
    """Who does not know the token submits nothing."""
    stranger = Head(head.dashboard, {**head.variables, "RAY_AUTH_TOKEN": "wrong" * 8})
    result = stranger.submit("outrider", "config", "schema")

    assert result.returncode != 0
    assert "oken" in result.stdout + result.stderr
