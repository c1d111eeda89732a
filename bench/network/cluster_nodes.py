"""A service over several Ray nodes on one machine: `python -m bench.network.cluster_nodes`, until Ctrl-C.

Four hosts of `bench.network.network`, each a Ray node with an address of its own: the head, where the service is started and its coordinator
stays, two nodes with a target each, and one for drafters. Between them is nothing but links with delay and bandwidth.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.network.network import Network, network
from bench.network.ray_nodes import NodeSpec, RayNodes, ray_nodes
from bench.running.bench_service import OUTRIDER

HEAD = "head"
TARGETS = ("target-a", "target-b")
DRAFTERS = "drafters"

START_S = 400.0
"""Bound on the start of a service: 40 seconds on two idle cores, many times that on a busy machine."""

END_S = 60.0
"""Bound on its end."""


class NotServing(RuntimeError):
    """The service did not start; says what it wrote."""


@dataclass
class Cluster:
    """Nodes with a service on them."""

    network: Network
    nodes: RayNodes
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def ready(self) -> dict[str, Any]:
        """The service's ready file."""
        found: dict[str, Any] = json.loads((self.folder / "ready").read_text())
        return found

    @property
    def address(self) -> str:
        """Where clients go."""
        return str(self.ready["address"])

    @property
    def log(self) -> str:
        """What the service has said."""
        return (self.folder / "log").read_text(errors="replace")

    def wait(self) -> None:
        """Waits until the service serves.

        Raises:
            NotServing: It ended, or is late.
        """
        deadline = time.monotonic() + START_S
        while not (self.folder / "ready").exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise NotServing(self.log)
            time.sleep(0.1)


def configuration(
    head: str,
    *,
    num_targets: int = 2,
    num_drafters: int = 3,
    drafters: Sequence[Mapping[str, Any]] = (),
    **sections: Any,
) -> dict[str, Any]:
    """The shipped models over the nodes.

    Args:
        head: Address of the Ray cluster.
        num_targets: Replicas of the target.
        num_drafters: Replicas of the drafter.
        drafters: Further ones.
        sections: Keys laid over those of the sections `service` and `cluster`; others as they are.
    """
    host = head.rpartition(":")[0]
    return {
        **sections,
        "service": {"listen": f"{host}:50051", **sections.get("service", {})},
        "cluster": {"address": head, **sections.get("cluster", {})},
        "targets": [
            {
                "model": "demo:target",
                "replicas": num_targets,
                "num_slots": 16,
                "node_labels": {"role": "target"},
            }
        ],
        "drafters": [
            {"model": "demo:draft-small", "replicas": num_drafters, "num_slots": 32},
            *drafters,
        ],
    }


def node_specs(net: Network, *, num_cpus: float = 4) -> list[NodeSpec]:
    """The nodes, the head first."""
    roles = {HEAD: "head", DRAFTERS: "drafters", **dict.fromkeys(TARGETS, "target")}
    return [
        NodeSpec(host=net.hosts[name], num_cpus=num_cpus, labels={"role": role})
        for name, role in roles.items()
    ]


@contextmanager
def serving(
    net: Network, nodes: RayNodes, config: Mapping[str, Any], *, at: str = HEAD
) -> Iterator[Cluster]:
    """Starts `outrider serve` on a node; does not wait. Ends it, by force if need be."""
    with tempfile.TemporaryDirectory(prefix="outrider-cluster-") as name:
        folder = Path(name)
        (folder / "service.json").write_text(json.dumps(config))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(*net.hosts[at].prefix, *OUTRIDER, "serve"),
                    *("--config", str(folder / "service.json")),
                    *("--ready-file", str(folder / "ready")),
                ],
                env=nodes.environment,
                stdout=log,
                stderr=log,
            )
        try:
            yield Cluster(net, nodes, process, folder)
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(END_S)


@contextmanager
def cluster(
    *,
    delay_s: float = 0.0,
    bits_per_s: float = 0.0,
    packages: Path | None = None,
    **config: Any,
) -> Iterator[Cluster]:
    """The four nodes and the service; serves when it is yielded.

    Args:
        delay_s: One way, of the link of each node.
        bits_per_s: What each can send; 0 without a limit.
        packages: As in `RayNodes`.
        config: As `configuration`.
    """
    with network([HEAD, *TARGETS, DRAFTERS]) as net:
        for name in (HEAD, *TARGETS, DRAFTERS):
            net.set_link(name, delay_s=delay_s / 2, bits_per_s=bits_per_s)
        with (
            ray_nodes(node_specs(net), packages) as nodes,
            serving(net, nodes, configuration(nodes.address, **config)) as made,
        ):
            made.wait()
            yield made


def main(arguments: Sequence[str] | None = None) -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.network.cluster_nodes", description=__doc__
    )
    parser.add_argument("--delay-ms", type=float, default=0.5, help="one way between two nodes")
    parser.add_argument("--mbit", type=float, default=1000.0, help="what a node can send a second")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    print("four Ray nodes, two targets, three drafters: this takes a minute", flush=True)
    with cluster(delay_s=options.delay_ms / 1e3, bits_per_s=options.mbit * 1e6) as made:
        for actor in made.ready["actors"]:
            print(f"{actor['role']:<12} {actor['name']:<20} {actor['address']}")
        print(f'\noutrider generate "Once upon a time" --address {made.address}')
        print(f"outrider status --address {made.address}\n\nCtrl-C ends it.", flush=True)
        try:
            made.process.wait()
        except KeyboardInterrupt:
            return


if __name__ == "__main__":
    main()
