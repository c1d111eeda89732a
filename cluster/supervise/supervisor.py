"""Keeps the actors of a service alive: places them, starts them, replaces the dead and the silent, tells who is there.

Knows nothing of Ray: actors run at an `ActorHost`. Invariants: at most one start of an actor is on the roster; a start is
fenced before the next one begins; an actor that has served is started again for ever, with growing pauses; whoever should be
there and is not is on the roster as absent, with the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

import grpc
import structlog

from outrider.actors.rpc.credentials import Credentials
from outrider.actors.rpc.grpc_server import bind, internal_server, serve_health
from outrider.cluster.config.host_port import join_host_port
from outrider.cluster.metrics.federation import Federation
from outrider.cluster.metrics.metrics_endpoint import MetricsEndpoint
from outrider.cluster.placement.actor_host import ActorHost
from outrider.cluster.placement.actor_specs import ActorSpec, beside
from outrider.cluster.roster import cluster_service
from outrider.cluster.roster.actor_status import ActorStatus
from outrider.cluster.roster.cluster_service import ClusterServicer
from outrider.cluster.roster.incarnations import Incarnations
from outrider.cluster.roster.roster import Registry, Role
from outrider.cluster.supervise.actor_supervisor import ActorSupervisor
from outrider.cluster.supervise.changes import Change, Kind
from outrider.cluster.supervise.leaving import see_off
from outrider.cluster.supervise.supervisor_settings import SupervisorSettings
from outrider.v1 import cluster_pb2_grpc

EXPIRY_CHECK_S = 0.25
"""How often leases are looked at: a small part of the shortest lease, 1 s."""

log = structlog.get_logger(__name__)


class Supervisor:
    """Keeps one service alive."""

    def __init__(
        self,
        specs: tuple[ActorSpec, ...],
        host: ActorHost,
        settings: SupervisorSettings,
        *,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._specs = specs
        self._host = host
        self._settings = settings
        self._clock_s = clock_s
        self._credentials = Credentials.fresh(settings.tls)
        self._registry = Registry(lease_s=settings.cluster.lease_s)
        self.servicer = ClusterServicer(self._registry, clock_s)
        """The `ClusterService`."""
        self._configured: dict[str, ActorSpec] = {spec.name: spec for spec in specs}
        """What runs, as configured, by the configuration's names."""
        self._actors: dict[str, ActorSupervisor] = {}
        """By the same names."""
        self._leaving: dict[str, ActorSupervisor] = {}
        """Those that end once their requests have ended, by the name that they run by."""
        self._incarnations = Incarnations()
        self._generation = 1
        self._address = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: grpc.aio.Server | None = None
        self.federation = Federation(self.status, lambda: self._registry.roster, self._credentials)
        """Asks every actor for its metrics."""
        listen, page = settings.metrics, self.federation.page
        self._endpoint = MetricsEndpoint(listen, page) if listen is not None else None

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of the metrics over HTTP; empty if they are not served."""
        return self._endpoint.address if self._endpoint is not None else ""

    def status(self) -> tuple[ActorStatus, ...]:
        """Every actor, in the order of the configuration, the coordinators last; then those that are leaving."""
        return tuple(actor.status for actor in (*self._actors.values(), *self._leaving.values()))

    @property
    def configured(self) -> dict[str, ActorSpec]:
        """What runs, as configured, by name."""
        return dict(self._configured)

    @property
    def admin(self) -> tuple[str, Credentials]:
        """Address of the `ClusterService`, and what calls to it carry."""
        return self._address, self._credentials

    async def launch(self) -> str:
        """Starts everything: all at once, but coordinators serve once the workers do.

        Returns:
            The address of the `ClusterService`.

        Raises:
            PlacementError: Resources are missing.
            LaunchFailed: An actor cannot start. What had started goes on until `stop`.
        """
        address = self._address = await self._serve()
        for spec in self._specs:
            self._actors[spec.name] = self._supervise(spec)
        if self._endpoint is not None:
            await self._endpoint.start()
        await self._host.wait_for_room(
            self._specs, timeout_s=self._settings.cluster.placement_timeout_s, tell=self._wait_for
        )
        await self._keep_all(tuple(self._actors.values()))
        return address

    async def change(
        self, changes: Sequence[Change], *, drain_s: float, tell: Callable[[str], None]
    ) -> asyncio.Task[None]:
        """Carries out a plan: what is new starts first, and what it replaces ends when it serves.

        Args:
            changes: What to do.
            drain_s: Seconds that requests may go on at actors that end.
            tell: Is told of each step.

        Returns:
            The end of those that leave, which goes on by itself.

        Raises:
            PlacementError, LaunchFailed: Something new cannot start. What ran goes on as it was.
        """
        self._generation += 1
        taken = {
            *self._actors,
            *(actor.spec.name for actor in self._actors.values()),
            *self._leaving,
        }
        specs: dict[str, ActorSpec] = {}
        for one in changes:
            if one.spec is not None:
                specs[one.name] = self._fresh(one.spec, taken)
                taken.add(specs[one.name].name)
        await self._host.wait_for_room(
            tuple(specs.values()), timeout_s=self._settings.cluster.placement_timeout_s, tell=tell
        )
        fresh = {name: self._supervise(spec) for name, spec in specs.items()}
        try:
            await self._keep_all(tuple(fresh.values()), tell=tell)
        except BaseException:
            undoing = self._start(self._undo(tuple(fresh.values())), "undoing")
            await asyncio.shield(undoing)  # A change may be called off twice.
            raise
        leaving = [self._actors[one.name] for one in changes if one.kind is not Kind.ADD]
        for one in changes:
            if one.spec is None:
                del self._configured[one.name], self._actors[one.name]
            else:
                self._configured[one.name] = one.spec
                self._actors[one.name] = fresh[one.name]
        for actor in leaving:
            self._leaving[actor.spec.name] = actor
        serving = {spec.deployment for spec in self._configured.values()}
        ending = self._start(
            see_off(leaving, serving, self._credentials, drain_s=drain_s, tell=tell), "leaving"
        )
        ending.add_done_callback(lambda _: self._forget(leaving))
        return ending

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Does work beside everything else, until it is done or the supervisor stops."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _undo(self, fresh: Sequence[ActorSupervisor]) -> None:
        """Ends what a change that failed had begun to start. Why it failed is told to whoever asked for it; there is no such actor."""
        await asyncio.gather(*(actor.end(0.0) for actor in fresh))
        for actor in fresh:
            self._registry.forget_absent(actor.spec.name)

    def _forget(self, left: Iterable[ActorSupervisor]) -> None:
        for actor in left:
            self._leaving.pop(actor.spec.name, None)

    def _fresh(self, spec: ActorSpec, taken: Collection[str]) -> ActorSpec:
        """A spec under a name that nobody has, listening where its predecessors do or will again."""
        name, number = spec.name, self._generation
        while name in taken:
            name, number = f"{spec.name}.{number}", number + 1
        named = replace(spec, name=name, settings=replace(spec.settings, name=name))
        for other in self._actors.values() if spec.role is Role.COORDINATOR else ():
            if other.spec.role is Role.COORDINATOR:
                return beside(named, other.spec)
        return named

    async def stop(self, grace_s: float) -> None:
        """Ends everything: the coordinator drains within the grace, then the workers end. Idempotent."""
        for is_coordinator, grace in ((True, grace_s), (False, 0.0)):
            ending = (
                actor.end(grace)
                for actor in (*self._actors.values(), *self._leaving.values())
                if (actor.status.role is Role.COORDINATOR) is is_coordinator
            )
            await asyncio.gather(*ending)
        if self._endpoint is not None:
            await self._endpoint.stop()
        await self.federation.close()
        tasks, self._tasks = tuple(self._tasks), set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0.0)
            self._server = None

    def _wait_for(self, lacking: str) -> None:
        self._actors[self._specs[-1].name].wait_for(f"no room yet: {lacking}" if lacking else "")

    async def _serve(self) -> str:
        server = internal_server(self._credentials)
        cluster_pb2_grpc.add_ClusterServiceServicer_to_server(self.servicer, server)
        await serve_health(server, cluster_service.NAME)
        port = bind(server, join_host_port(self._settings.host, 0), self._credentials.tls)
        await server.start()
        self._server = server
        self._start(self._expire_forever(), "expiry")
        return join_host_port(self._settings.host, port)

    def _supervise(self, spec: ActorSpec) -> ActorSupervisor:
        return ActorSupervisor(
            spec,
            host=self._host,
            registry=self._registry,
            incarnations=self._incarnations,
            settings=self._settings,
            supervisor=self._address,
            credentials=self._credentials,
            clock_s=self._clock_s,
        )

    async def _keep_all(
        self, actors: Sequence[ActorSupervisor], tell: Callable[[str], None] = lambda text: None
    ) -> None:
        """Starts actors, all at once, and keeps each alive from then on. Coordinators serve once the workers do."""
        serving: dict[ActorSupervisor, asyncio.Future[None]] = {}
        for actor in actors:
            future = serving[actor] = asyncio.get_running_loop().create_future()
            self._start(actor.keep(future), actor.spec.name)
        try:
            for is_coordinator in (False, True):
                some = [a for a in actors if (a.spec.role is Role.COORDINATOR) is is_coordinator]
                for actor in some:
                    actor.may_serve()
                await _first_failure(serving.values(), until=[serving[actor] for actor in some])
                for actor in some:
                    tell(f"{actor.spec.role} {actor.spec.name}: {actor.status.state}")
        finally:
            # The first failure is the launch's; that of a second actor must not be reported as never retrieved.
            for future in serving.values():
                future.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _expire_forever(self) -> None:
        """Ends the processes of those who are silent for longer than the lease; they are started again."""
        lease_s = self._settings.cluster.lease_s
        silent = f"silent for longer than {lease_s:g} s (cluster.lease_s)"
        while True:
            begun_s = self._clock_s()
            await asyncio.sleep(EXPIRY_CHECK_S)
            # A process, a container or a whole machine can be suspended: silence during that says nothing of the others.
            paused_s = max(0.0, self._clock_s() - begun_s - EXPIRY_CHECK_S)
            # Renewals that came meanwhile are still to be read, so that time counts for nobody.
            self._registry.prolong(paused_s)
            for member in self._registry.expire(now_s=self._clock_s()):
                log.warning("lease ended", actor=member.name, lease_s=lease_s)
                for actor in (*self._actors.values(), *self._leaving.values()):
                    if actor.spec.name == member.name:
                        await actor.kill(incarnation=member.incarnation, reason=silent)


async def _first_failure(
    futures: Iterable[asyncio.Future[None]], *, until: Iterable[asyncio.Future[None]]
) -> None:
    """Waits until some of the futures have a result. Raises what any of them fails with meanwhile."""
    awaited, pending = set(until), set(futures)
    while awaited & pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()
