"""A Ray cluster of one node, with a job server that asks for a token."""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from ray.autoscaler._private.fake_multi_node.node_provider import (
    FAKE_HEAD_NODE_ID,
    FAKE_HEAD_NODE_TYPE,
)
from tests.service.processes import END_TIMEOUT_S, START_TIMEOUT_S, environment, until

RAY = str(Path(sys.executable).parent / "ray")

SCRIPT = f"""#!{sys.executable}
from outrider.client.cli import main
main()
"""
"""The `outrider` of the cluster's nodes, where nothing is installed."""


PORTS = range(20_000, 32_000)
"""Above those of Ray's workers, and below those that Linux gives away: a port that is told to a process which takes it only seconds later
must not go to another one meanwhile."""


def free_ports(number: int) -> list[int]:
    """Different ports of which nobody has one at this moment."""
    found: list[int] = []
    for port in random.sample(PORTS, 1_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == number:
            return found
    raise OSError(f"no {number} ports are free among a thousand of {PORTS}")


@dataclass
class Head:
    """A Ray cluster of one node with a job server."""

    dashboard: str
    variables: dict[str, str]


@contextmanager
def ray_head(*, num_cpus: float = 4, node_types: Mapping[str, Any] | None = None) -> Iterator[Head]:
    """`ray start --head --block` on loopback, with a token and the resource `target_node`; ended by its own process.

    Args:
        num_cpus: Of the node.
        node_types: What its autoscaler may add, as in Ray's cluster configuration: processes that take themselves for nodes. None:
            there is no autoscaler.
    """
    # Not under the test's folder, whose name is too long for Ray's sockets.
    folder = Path(tempfile.mkdtemp(prefix="head-", dir="/tmp"))
    (folder / "token").write_text(secrets.token_hex(32))
    (folder / "token").chmod(0o600)
    (folder / "outrider").write_text(SCRIPT)
    (folder / "outrider").chmod(0o700)
    port, dashboard = free_ports(2)
    variables = environment(
        RAY_AUTH_MODE="token",
        RAY_AUTH_TOKEN_PATH=str(folder / "token"),
        RAY_USAGE_STATS_ENABLED="0",
        **PATIENCE,
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
        f"--num-cpus={num_cpus:g}",
        '--resources={"target_node": 1}',
        "--object-store-memory=100000000",
        "--include-log-monitor=false",
        "--dashboard-agent-listen-port=0",
        f"--temp-dir={folder / 'ray'}",
    ]
    if node_types is None:
        command.append("--no-monitor")
    else:
        command.append(f"--autoscaling-config={folder / 'autoscaling.yaml'}")
        content = autoscaling(node_types, gcs=variables["RAY_ADDRESS"], num_cpus=num_cpus)
        (folder / "autoscaling.yaml").write_text(yaml.safe_dump(content))
        variables |= FAKE_NODES
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=variables, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until(lambda: answers(dashboard), timeout_s=START_TIMEOUT_S, what="Ray's job server")
        yield Head(f"http://127.0.0.1:{dashboard}", variables)
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(END_TIMEOUT_S)
        finally:
            family += [psutil.Process(process.pid)] if process.poll() is None else []
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            process.wait(END_TIMEOUT_S)
        shutil.rmtree(folder, ignore_errors=True)


PATIENCE = {
    "RAY_agent_register_timeout_ms": "100000",
    "RAY_worker_register_timeout_seconds": "100",
    "RAY_raylet_start_wait_time_s": "100",
}
"""On a machine that does much else, a node's parts come up late, and Ray's own deadlines then end the node."""

FAKE_NODES = {
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
}
"""Variables that Ray's provider of fake nodes wants of the head, as `ray.cluster_utils.AutoscalingCluster` sets them. That class itself
calls `ray stop`, which would end every Ray of the machine."""


UNUSED = (
    "cluster_synced_files",
    "rsync_exclude",
    "rsync_filter",
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)
"""Keys that Ray wants to be there and fake nodes have no use for."""


def autoscaling(node_types: Mapping[str, Any], *, gcs: str, num_cpus: float) -> dict[str, Any]:
    """A cluster configuration whose nodes are processes on this machine."""
    head = {"resources": {"CPU": num_cpus}, "node_config": {}, "max_workers": 0}
    module = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
    return {
        "cluster_name": "fake",
        "max_workers": 8,
        "idle_timeout_minutes": 0.1,
        "provider": {
            "type": "external",
            "module": module,
            "gcs_address": gcs,
            "head_node_id": FAKE_HEAD_NODE_ID,
            "launch_multiple": True,
        },
        "auth": {},
        "file_mounts": {},
        "docker": {},
        **{name: [] for name in UNUSED},
        "available_node_types": {**node_types, FAKE_HEAD_NODE_TYPE: head},
        "head_node_type": FAKE_HEAD_NODE_TYPE,
    }


def answers(port: int) -> bool:
    """Whether someone listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
