"""The nodes of the Ray cluster that this process belongs to, and how far they are from each other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Sequence
from typing import Any

import ray
import structlog
from ray.autoscaler.sdk import request_resources
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from outrider.cluster.placement.actor_specs import ActorSpec
from outrider.cluster.placement.distance import round_trips
from outrider.cluster.placement.placement import NodeRoom, Tenant
from outrider.cluster.placement.ray_calls import in_turn

SURVEY_S = 15.0
"""Bound on a survey: a process has to start on each node. Nodes that are late count as far."""

log = structlog.get_logger(__name__)


async def living_nodes() -> list[NodeRoom]:
    """The nodes that are alive."""
    return [
        NodeRoom(
            node_id=node["NodeID"],
            address=(node["NodeManagerAddress"], node["NodeManagerPort"]),
            resources=node["Resources"],
            labels=node["Labels"],
        )
        for node in await in_turn(ray.nodes)
        if node["Alive"]
    ]


async def ask_for(specs: Sequence[ActorSpec | Tenant]) -> None:
    """Tells Ray's autoscaler, if there is one, what the cluster must be able to hold at the same time; nothing if there are none."""
    bundles = [dict(spec.resources) for spec in specs if spec.resources]
    labels = [dict(spec.node_labels) for spec in specs if spec.resources]
    await asyncio.to_thread(
        request_resources, bundles=bundles, bundle_label_selectors=labels if any(labels) else None
    )


class Surveyor:
    """Measures round trips between nodes, each pair once: connections to the port of Ray's own node manager."""

    def __init__(self) -> None:
        self.round_trips: dict[tuple[str, str], float] = {}
        """Seconds from one node to another and back, by their ids."""
        self._lock = asyncio.Lock()

    async def survey(self, nodes: Sequence[NodeRoom], targets: Collection[str]) -> None:
        """Measures what is not known yet: from every node to those of targets."""
        async with self._lock:
            addresses = {room.node_id: room.address for room in nodes}
            wanted: dict[str, list[str]] = {}
            for room in nodes:
                unknown = [
                    target
                    for target in sorted(targets)
                    if target != room.node_id
                    and target in addresses
                    and (room.node_id, target) not in self.round_trips
                ]
                if unknown:
                    wanted[room.node_id] = unknown
            results = await asyncio.gather(
                *(
                    self._ask(node, [addresses[t] for t in unknown])
                    for node, unknown in wanted.items()
                )
            )
            for (node, unknown), found in zip(wanted.items(), results, strict=True):
                for target, seconds in zip(unknown, found, strict=True):
                    self.round_trips[node, target] = seconds

    async def _ask(self, node_id: str, addresses: list[tuple[str, int]]) -> list[float]:
        """Round trips from a node; infinite if it does not answer."""
        here = NodeAffinitySchedulingStrategy(node_id, soft=False)
        remote: Any = ray.remote(round_trips)
        task = remote.options(num_cpus=0, max_retries=0, scheduling_strategy=here)
        try:
            async with asyncio.timeout(SURVEY_S):
                found: list[float] = await task.remote(addresses)
        except (TimeoutError, ray.exceptions.RayError) as error:
            log.warning("distances are not known", node=node_id, reason=repr(error))
            return [math.inf] * len(addresses)
        return found
