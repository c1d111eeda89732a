"""A Ray cluster of several nodes on one machine, each node on a host of `bench.network.network` with an address of its own.

Nodes share nothing but files: what they say to each other crosses the network. Ray asks for a token. A node is ended by its own
processes and never by `ray stop`, which ends every Ray of the machine.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from bench.network.network import Host
from bench.running.child import ROOT

PORT = 6379
"""Of the head's control store, on the head's own address."""

DASHBOARD_PORT = 8265
"""Of the head's job server, on the head's own address."""

OBJECT_STORE_BYTES = 80 * 2**20
"""Ray refuses less than 75 MiB; no token passes through it."""

STARTED = "Ray runtime started"
"""What a node says when all its processes run."""

START_S = 200.0
"""A node that is not part of the cluster by then has failed. Five seconds on an idle machine."""

END_S = 10.0
"""Bound on the end of killed processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node of Ray."""

    host: Host
    num_cpus: float = 4
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


class NodeFailed(RuntimeError):
    """A node did not start; says what it wrote."""


class RayNodes:
    """Nodes of one Ray cluster. A context manager: leaving it ends all."""

    def __init__(self, head: Host, packages: Path | None = None) -> None:
        """Starts nothing yet.

        Args:
            head: Where the head node will be.
            packages: A folder of further packages, for drafting methods that are not part of the product; None: none.
        """
        self._packages = packages
        self.address = f"{head.address}:{PORT}"
        self.dashboard = f"http://{head.address}:{DASHBOARD_PORT}"
        # A short name: Ray appends up to 65 characters for its sockets, and Linux allows 107.
        self._folder = Path(tempfile.mkdtemp(prefix="orn-", dir="/tmp"))
        token = self._folder / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        self._head = head
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a program that uses this cluster: the source tree, the token, and nothing else that concerns Ray."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(
                str(folder) for folder in (ROOT / "src", self._packages) if folder is not None
            ),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._folder / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
        }

    def start(self, specs: Sequence[NodeSpec]) -> None:
        """Starts nodes and waits until they belong to the cluster. The head must be among the first ones.

        Raises:
            NodeFailed: One has ended or is late.
        """
        # One after the other: nodes that start together on few cores miss Ray's own deadlines.
        for spec in sorted(specs, key=lambda spec: spec.host.name != self._head.name):
            self._start(spec)
            self._await(len(self._nodes))

    def names(self, name: str) -> list[str]:
        """What the processes of a node call themselves; Ray's workers say what they run."""
        found = []
        for member in _family(self._nodes[name].pid):
            with suppress(psutil.Error):
                found.append(" ".join(member.cmdline()))
        return found

    def lose(self, name: str) -> None:
        """Kills every process of a node, as a power failure does."""
        process = self._nodes.pop(name)
        family = _family(process.pid)
        for member in family:
            _kill(member)
        process.wait(END_S)
        psutil.wait_procs(family, END_S)

    def stop(self) -> None:
        """Ends every node and removes its files. Idempotent."""
        for name in list(self._nodes):
            self.lose(name)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _start(self, spec: NodeSpec) -> None:
        host = spec.host
        command = [
            *host.prefix,
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block"),
            *("--node-ip-address", host.address, "--num-cpus", f"{spec.num_cpus:g}"),
            *("--object-store-memory", str(OBJECT_STORE_BYTES)),
            # Reads whatever anybody writes, as long as the node lives, to show it to programs that have joined.
            *("--include-log-monitor", "false"),
            *("--resources", json.dumps(dict(spec.resources))),
            *("--labels", ",".join(f"{key}={value}" for key, value in spec.labels.items())),
        ]
        if host.name == self._head.name:
            command += ["--head", "--port", str(PORT), "--temp-dir", str(self._folder / "ray")]
            command += ["--dashboard-host", host.address, "--dashboard-port", str(DASHBOARD_PORT)]
        else:
            command += ["--address", self.address]
        with (self._folder / f"{host.name}.log").open("wb") as log:
            self._nodes[host.name] = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def _await(self, number: int) -> None:
        """Waits until so many nodes live. The control store is asked once all say so: asking takes a process."""
        deadline = time.monotonic() + START_S
        living = 0
        while not all(STARTED in said for said in self._said().values()) or (
            (living := self._num_living()) < number
        ):
            for name, process in self._nodes.items():
                if process.poll() is not None or time.monotonic() > deadline:
                    said = self._said()[name][-2000:]
                    raise NodeFailed(f"{living} of {number} nodes; {name!r} wrote: {said}")
            time.sleep(0.2)

    def _said(self) -> dict[str, str]:
        """What the nodes have written, by name."""
        return {
            name: (self._folder / f"{name}.log").read_text(errors="replace") for name in self._nodes
        }

    def _num_living(self) -> int:
        """As the control store says, asked from the head's own host."""
        ask = (
            "import sys; from ray._raylet import GcsClient; "
            "print(sum(n.state == 0 for n in GcsClient(address=sys.argv[1]).get_all_node_info(timeout=5).values()))"
        )
        done = subprocess.run(
            [*self._head.prefix, sys.executable, "-c", ask, self.address],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        return int(done.stdout) if done.returncode == 0 else 0


@contextmanager
def ray_nodes(specs: Sequence[NodeSpec], packages: Path | None = None) -> Iterator[RayNodes]:
    """A running cluster; the first node is the head. `packages` as in `RayNodes`."""
    with RayNodes(specs[0].host, packages) as nodes:
        nodes.start(specs)
        yield nodes


def _family(pid: int) -> list[psutil.Process]:
    try:
        own = psutil.Process(pid)
        return [own, *own.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
