"""Actors as Ray processes: the `ActorHost` of a real service. Used inside the supervisor's process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from outrider.actors.draft.actor import DraftActor
from outrider.actors.residence import Identity, Started
from outrider.actors.target.actor import TargetActor
from outrider.cluster.actor_host import ActorCrashed, ActorRefused
from outrider.cluster.coordinator_actor import CoordinatorActor
from outrider.cluster.fleet import ActorSettings, ActorSpec
from outrider.cluster.placement import NodeRoom, PlacementError, bundle_indices, shortage
from outrider.cluster.ray_errors import first_line
from outrider.cluster.roster import Role

CALLS_PER_ACTOR = 16
"""Control calls that an actor may hold at a time; `run` is one, `stop` another. Ray's default is a thousand."""

LOOPBACK = "127.0.0.1"
"""Where actors listen if they are all on this machine."""

_CLASSES: dict[Role, type] = {
    Role.TARGET: TargetActor,
    Role.DRAFTER: DraftActor,
    Role.COORDINATOR: CoordinatorActor,
}


def living_nodes() -> list[NodeRoom]:
    """The nodes of the Ray cluster that this process belongs to."""
    return [
        NodeRoom(
            node_id=node["NodeID"], host=node["NodeManagerAddress"], resources=node["Resources"]
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


class RayActorHost:
    """Runs actors in one placement group; those without needs run beside the supervisor."""

    def __init__(self, *, strategy: str, use_loopback: bool, may_grow: bool) -> None:
        """Reserves nothing yet.

        Args:
            strategy: How Ray spreads the bundles: PACK, SPREAD, STRICT_PACK or STRICT_SPREAD.
            use_loopback: Actors listen on loopback, not at the address of their node.
            may_grow: Nodes may yet join, so that a shortage is waited out.
        """
        self._strategy = strategy
        self._use_loopback = use_loopback
        self._may_grow = may_grow
        self._group: PlacementGroup | None = None
        self._bundles: dict[str, int] = {}
        self._own_node = ray.get_runtime_context().get_node_id()

    async def place(self, specs: tuple[ActorSpec, ...], *, timeout_s: float) -> None:
        """Reserves the resources of all actors, together."""
        self._bundles = bundle_indices(specs)
        bundles = [dict(spec.resources) for spec in specs if spec.name in self._bundles]
        if not bundles:
            return
        lacking = shortage(specs, living_nodes())
        if lacking is not None and not self._may_grow:
            raise PlacementError(f"there is no room in the Ray cluster: {lacking}")
        self._group = placement_group(bundles, strategy=self._strategy)
        try:
            await asyncio.wait_for(_outcome(self._group.ready()), timeout_s)
        except TimeoutError:
            lacking = shortage(specs, living_nodes()) or (
                f"other work holds the resources, or strategy {self._strategy} (cluster.placement) does not fit the nodes"
            )
            raise PlacementError(
                f"found no room in the Ray cluster within {timeout_s:g} s (cluster.placement_timeout_s): {lacking}"
            ) from None

    def listen_host(self, spec: ActorSpec) -> str:
        """The host that an actor listens at."""
        if self._use_loopback:
            return LOOPBACK
        hosts = {node.node_id: node.host for node in living_nodes()}
        return hosts.get(self._node_of(spec), LOOPBACK)

    def spawn(self, spec: ActorSpec, settings: ActorSettings, identity: Identity) -> RayActor:
        """Starts the process of an actor."""
        options: dict[str, Any] = {
            "name": f"{spec.name}@{identity.incarnation}",
            "num_cpus": spec.resources.get("CPU", 0),
            "num_gpus": spec.resources.get("GPU", 0),
            "resources": {k: v for k, v in spec.resources.items() if k not in ("CPU", "GPU")},
            "max_concurrency": CALLS_PER_ACTOR,
            "max_restarts": 0,  # The supervisor restarts, with a new incarnation.
            "max_task_retries": 0,
        }
        if self._group is not None and spec.name in self._bundles:
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=self._bundles[spec.name]
            )
        else:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(
                self._own_node, soft=False
            )
        remote: Any = ray.remote(_CLASSES[spec.role])
        handle = remote.options(**options).remote(settings, identity)
        return RayActor(handle, own_node=self._own_node)

    async def release(self) -> None:
        """Gives the placement group back."""
        group, self._group = self._group, None
        if group is not None:
            await asyncio.to_thread(remove_placement_group, group)

    def _node_of(self, spec: ActorSpec) -> str:
        if self._group is None or spec.name not in self._bundles:
            return str(self._own_node)
        table = ray.util.placement_group_table(self._group)
        return str(table["bundles_to_node_id"][self._bundles[spec.name]])


class RayActor:
    """One start of an actor in a Ray process."""

    def __init__(self, handle: Any, *, own_node: str) -> None:
        self._handle = handle
        self._own_node = own_node
        self._process: psutil.Process | None = None

    async def start(self) -> Started:
        """Waits until it serves."""
        try:
            started: Started = await _outcome(self._handle.start.remote())
        except RayTaskError as error:
            raise ActorRefused(str(error.cause)) from error
        except RayError as error:
            raise ActorCrashed(first_line(error)) from error
        if started.node_id == self._own_node:
            # Identified now, while it surely lives: a pid alone could be another's by the time of `kill`.
            self._process = psutil.Process(started.pid)
        return started

    async def run(self) -> str:
        """Waits for its end and says how it came."""
        try:
            await _outcome(self._handle.run.remote())
        except RayError as error:
            return first_line(error)
        return "it stopped by itself"

    async def stop(self, grace_s: float) -> None:
        """Asks it to stop."""
        try:
            await _outcome(self._handle.stop.remote(grace_s))
        except RayActorError:
            return  # It is gone, which is what was asked for.

    async def kill(self) -> None:
        """Ends its process."""
        ray.kill(self._handle, no_restart=True)
        if self._process is not None:
            # Ray asks the process to end; one that hangs or is suspended does not hear it.
            await asyncio.to_thread(_end, self._process)


def _end(process: psutil.Process) -> None:
    try:
        process.wait(timeout=1.0)
    except psutil.TimeoutExpired:
        process.kill()


async def _outcome(ref: Awaitable[Any]) -> Any:
    """Awaits an object reference: Ray's are awaitable, but no coroutines."""
    return await ref
