"""Actors as Ray processes: the `ActorHost` of a real service. Used inside the supervisor's process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

import psutil
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from outrider.actors.draft.service.draft_actor import DraftActor
from outrider.actors.process.actor_runner import Identity, Started
from outrider.actors.target.service.target_actor import TargetActor
from outrider.cluster.gateway.coordinator_actor import CoordinatorActor
from outrider.cluster.placement.actor_host import ActorCrashed, ActorRefused
from outrider.cluster.placement.actor_specs import ActorSettings, ActorSpec
from outrider.cluster.placement.placement import (
    PlacementError,
    PlacementPolicy,
    Tenant,
    ranked,
    selectors,
    shortage,
)
from outrider.cluster.placement.ray_calls import in_turn
from outrider.cluster.placement.ray_nodes import Surveyor, ask_for, living_nodes
from outrider.cluster.ray.ray_errors import first_line
from outrider.cluster.roster.roster import Role

CALLS_PER_ACTOR = 16
"""Control calls that an actor may hold at a time; `run` is one, `stop` another. Ray's default is a thousand."""

LOOPBACK = "127.0.0.1"
"""Where actors listen if they are all on this machine."""

LOOK_S = 1.0
"""How often nodes are looked at while room is waited for."""

_CLASSES: dict[Role, type] = {
    Role.TARGET: TargetActor,
    Role.DRAFTER: DraftActor,
    Role.COORDINATOR: CoordinatorActor,
}


class RayActorHost:
    """Runs each actor on the node that suits it best. Ray is asked for that node, and for others if it has no room."""

    def __init__(self, *, policy: PlacementPolicy, use_loopback: bool, may_grow: bool) -> None:
        """Starts nothing yet.

        Args:
            policy: Which nodes are preferred.
            use_loopback: Actors listen on loopback, not at the address of their node.
            may_grow: Nodes may yet join, so that a shortage is waited out.
        """
        self._policy = policy
        self._use_loopback = use_loopback
        self._may_grow = may_grow
        self._tenants: dict[str, Tenant] = {}
        self._asked: set[str] = set()
        """Actors that nodes were asked for. Until they have processes, which keep their nodes, the request does."""
        self._own_node = ray.get_runtime_context().get_node_id()
        self._surveyor = Surveyor()

    @property
    def listen_host(self) -> str:
        """The host that actors listen at; empty: the address of their node."""
        return LOOPBACK if self._use_loopback else ""

    async def wait_for_room(
        self, specs: tuple[ActorSpec, ...], *, timeout_s: float, tell: Callable[[str], None]
    ) -> None:
        """Waits until there are nodes that could hold all actors."""
        deadline = time.monotonic() + timeout_s
        try:
            await self._wait_for_nodes(specs, deadline, timeout_s, tell)
        except BaseException:
            self._asked.clear()
            await ask_for([])
            raise
        nodes = await living_nodes()
        if len(nodes) > 1 and any(spec.role is Role.DRAFTER for spec in specs):
            # Before models are loaded: on busy machines distances look longer than they are.
            await self._surveyor.survey(nodes, {node.node_id for node in nodes})

    async def _wait_for_nodes(
        self,
        specs: tuple[ActorSpec, ...],
        deadline: float,
        timeout_s: float,
        tell: Callable[[str], None],
    ) -> None:
        told = ""
        tenants = tuple(self._tenants.values())
        while lacking := shortage(specs, await living_nodes(), self._policy, tenants):
            if not self._may_grow:
                raise PlacementError(f"there is no room in the Ray cluster: {lacking}")
            if time.monotonic() > deadline:
                raise PlacementError(
                    f"found no room in the Ray cluster within {timeout_s:g} s (cluster.placement_timeout_s): {lacking}"
                )
            if not told:
                # A cluster that grows by itself adds nodes until it could hold all that is asked for.
                self._asked = {spec.name for spec in specs if spec.resources}
                await ask_for([*tenants, *specs])
            if lacking != told:
                tell(lacking)
                told = lacking
            await asyncio.sleep(LOOK_S)
        if told:
            tell("")

    async def spawn(self, spec: ActorSpec, settings: ActorSettings, identity: Identity) -> RayActor:
        """Starts the process of an actor."""
        try:
            return await self._spawn(spec, settings, identity)
        except RayError as error:  # The control store is slow or out of reach.
            raise ActorCrashed(first_line(error)) from error

    async def _spawn(
        self, spec: ActorSpec, settings: ActorSettings, identity: Identity
    ) -> RayActor:
        self._tenants.pop(spec.name, None)
        nodes = await living_nodes()
        targets = {one.node_id for one in self._tenants.values() if one.role is Role.TARGET}
        if spec.role is Role.DRAFTER and len(nodes) > 1:
            await self._surveyor.survey(nodes, targets)
        best = ranked(
            spec,
            nodes,
            tuple(self._tenants.values()),
            self._policy,
            round_trips=self._surveyor.round_trips,
            own_node=self._own_node,
        )
        if best:
            self._settle(spec, best[0])
        first, *others = selectors(spec, best, targets, self._policy)
        options: dict[str, Any] = {
            "name": f"{spec.name}@{identity.incarnation}",
            "num_cpus": spec.resources.get("CPU", 0),
            "num_gpus": spec.resources.get("GPU", 0),
            "resources": {k: v for k, v in spec.resources.items() if k not in ("CPU", "GPU")},
            "max_concurrency": CALLS_PER_ACTOR,
            "max_restarts": 0,  # The supervisor restarts, with a new incarnation.
            "max_task_retries": 0,
            "label_selector": first,
            "fallback_strategy": [{"label_selector": other} for other in others],
        }
        remote: Any = ray.remote(_CLASSES[spec.role])
        handle = await in_turn(remote.options(**options).remote, settings, identity)
        if spec.name in self._asked:
            self._asked.discard(spec.name)
            if not self._asked:
                await ask_for([])
        return RayActor(
            handle,
            own_node=self._own_node,
            settle=lambda node_id: self._settle(spec, node_id),
            leave=lambda: self._tenants.pop(spec.name, None),
        )

    async def lacking(self, spec: ActorSpec) -> str:
        """Why an actor has no process yet."""
        others = tuple(one for name, one in self._tenants.items() if name != spec.name)
        try:
            nodes = await living_nodes()
        except RayError as error:
            return f"Ray does not tell its nodes: {first_line(error)}"
        return shortage((spec,), nodes, self._policy, others) or (
            "other work holds the resources of the nodes that it may run on"
        )

    def _settle(self, spec: ActorSpec, node_id: str) -> None:
        self._tenants[spec.name] = Tenant(
            role=spec.role,
            model=spec.model,
            node_id=node_id,
            resources=spec.resources,
            node_labels=spec.node_labels,
        )


class RayActor:
    """One start of an actor in a Ray process."""

    def __init__(
        self,
        handle: Any,
        *,
        own_node: str,
        settle: Callable[[str], None],
        leave: Callable[[], object],
    ) -> None:
        self._handle = handle
        self._own_node = own_node
        self._settle = settle
        self._leave = leave
        self._process: psutil.Process | None = None

    async def placed(self) -> None:
        """Waits until it has a process."""
        try:
            await self._handle.__ray_ready__.remote()
        except RayError as error:
            raise ActorCrashed(first_line(error)) from error

    async def prepare(self) -> None:
        """Waits until it has loaded what it can before others serve."""
        await _answer(self._handle.prepare.remote())

    async def start(self) -> Started:
        """Waits until it serves."""
        started: Started = await _answer(self._handle.start.remote())
        self._settle(started.node_id)
        if started.node_id == self._own_node:
            # Identified now, while it lives: a pid alone could be another's by the time of `kill`.
            try:
                self._process = psutil.Process(started.pid)
            except psutil.NoSuchProcess as error:
                raise ActorCrashed("its process ended as it began to serve") from error
        return started

    async def run(self) -> str:
        """Waits for its end and says how it came."""
        try:
            await self._handle.run.remote()
        except RayError as error:
            return first_line(error)
        return "it stopped by itself"

    async def stop(self, grace_s: float) -> None:
        """Asks it to stop."""
        try:
            await self._handle.stop.remote(grace_s)
        except RayActorError:
            return  # It is gone, which is what was asked for.

    async def kill(self) -> None:
        """Ends its process. Goes on if nobody waits for it any more."""
        self._leave()
        await asyncio.shield(asyncio.create_task(self._kill()))

    async def _kill(self) -> None:
        await in_turn(ray.kill, self._handle, no_restart=True)
        if self._process is not None:
            # Ray asks the process to end; one that hangs or is suspended does not hear it.
            await asyncio.to_thread(_end, self._process)


def _end(process: psutil.Process) -> None:
    try:
        process.wait(timeout=1.0)
    except psutil.TimeoutExpired:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


async def _answer(ref: Awaitable[Any]) -> Any:
    """Awaits an actor's answer.

    Raises:
        ActorRefused, ActorCrashed: It gave none.
    """
    try:
        return await ref
    except RayTaskError as error:
        raise ActorRefused(str(error.cause)) from error
    except RayError as error:
        raise ActorCrashed(first_line(error)) from error
