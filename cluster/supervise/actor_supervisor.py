"""Keeps one actor alive: start, watch, fence, restart with growing pauses. Used by the supervisor alone.

States: waiting -> starting -> serving -> restarting -> starting ...; from starting to failed when the launch fails by it; from
anywhere to stopped when it is told to end. An actor that has served is started again for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import structlog

from outrider.actors.process.actor_runner import Identity, Started
from outrider.actors.rpc.credentials import Credentials
from outrider.cluster.placement.actor_host import (
    ActorCrashed,
    ActorHost,
    ActorRefused,
    RunningActor,
)
from outrider.cluster.placement.actor_specs import ActorSpec, for_start, listening_at
from outrider.cluster.roster.actor_status import ActorState, ActorStatus
from outrider.cluster.roster.incarnations import Incarnations
from outrider.cluster.roster.roster import Absent, Registry, Role
from outrider.cluster.supervise.restart_policy import RestartCount
from outrider.cluster.supervise.supervisor_settings import SupervisorSettings

KILL_TIMEOUT_S = 5.0
"""How long the end of a killed process is waited for."""

LAUNCH_RESTARTS = 2
"""Restarts of an actor that has never served: enough for a process lost by accident, few enough that a launch which cannot
work says so soon."""

log = structlog.get_logger(__name__)


class LaunchFailed(RuntimeError):
    """An actor could not be started; says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Death:
    """Why an actor does not serve."""

    reason: str
    served_s: float = 0.0
    is_final: bool = False
    """Whether a first start that ended so would end so again."""


class ActorSupervisor:
    """One actor."""

    def __init__(
        self,
        spec: ActorSpec,
        *,
        host: ActorHost,
        registry: Registry,
        incarnations: Incarnations,
        settings: SupervisorSettings,
        supervisor: str,
        credentials: Credentials,
        clock_s: Callable[[], float],
    ) -> None:
        """Args:
        spec: What to keep.
        host: Where it runs.
        registry: Is told of it.
        incarnations: Number its starts.
        settings: Of the supervisor.
        supervisor: Address of the supervisor's `ClusterService`.
        credentials: What the actor's calls carry, and calls to it must.
        clock_s: Monotonic time.
        """
        self._spec = spec
        self._host = host
        self._registry = registry
        self._incarnations = incarnations
        self._settings = settings
        self._supervisor = supervisor
        self._credentials = credentials
        self._clock_s = clock_s
        self._status = ActorStatus(name=spec.name, role=spec.role, model=spec.model)
        self._running: RunningActor | None = None
        self._is_ending = False
        self._is_retiring = False
        self._has_served = False
        self._killed_for = ""
        """Why the process of the present start was ended from here; empty: it was not."""
        self._turn = asyncio.Event()

    @property
    def status(self) -> ActorStatus:
        """What the actor is doing."""
        return self._status

    async def keep(self, serving: asyncio.Future[None]) -> None:
        """Keeps the actor alive until it is told to end, or the launch fails by it. It serves from `may_serve` on.

        Args:
            serving: Is resolved when the actor serves for the first time, or with `LaunchFailed` if it will not.
        """
        count, restarts = RestartCount(), self._settings.cluster.restarts
        try:
            while not (self._is_ending or self._is_retiring):
                death = await self._live(serving)
                count = count.after_death(served_s=death.served_s, policy=restarts)
                wait_s = self._wait_s(count, death)
                if self._is_retiring:
                    self._set(state=ActorState.STOPPED)
                if self._is_ending or self._is_retiring:
                    break
                if wait_s is None:
                    return self._give_up(death.reason, serving)
                log.warning("restarting", actor=self._spec.name, reason=death.reason, wait_s=wait_s)
                self._set(state=ActorState.RESTARTING, reason=death.reason)
                if count.in_a_row > LAUNCH_RESTARTS and not serving.done():
                    serving.set_result(None)  # A drafter: the launch goes on without it.
                await asyncio.sleep(wait_s)
                self._set(restarts=self._status.restarts + 1)
        except Exception as error:  # A fault in here must end the launch, not leave it waiting.
            self._give_up(f"cannot be kept alive: {error!r}", serving)
            raise
        finally:
            if not serving.done():
                serving.set_exception(LaunchFailed("the service was stopped while it started"))

    @property
    def spec(self) -> ActorSpec:
        """What it keeps, under the name that it runs by."""
        return self._spec

    def retire(self) -> None:
        """Does not start the actor again when it ends; it takes no new sessions from now on."""
        self._is_retiring = True
        self._registry.drain(self._spec.name)
        if self._status.state is ActorState.SERVING:
            self._set(state=ActorState.DRAINING)

    def may_serve(self) -> None:
        """Those have started that should before it; until then it has only what it needs for itself."""
        self._turn.set()

    def wait_for(self, reason: str) -> None:
        """Says why the actor's turn to start has not come."""
        self._set(reason=reason)

    async def kill(self, *, incarnation: int, reason: str) -> None:
        """Ends the process of one start, if it is the present one; `keep` then starts the next, and tells the reason."""
        if self._running is not None and self._status.incarnation == incarnation:
            self._killed_for = reason
            await self._within(KILL_TIMEOUT_S, "kill", self._running.kill())

    async def end(self, grace_s: float) -> None:
        """Stops the actor: politely within the grace, then by force. It is not started again."""
        self._is_ending = True
        self._turn.set()
        running = self._running
        if running is not None and self._status.state in (ActorState.SERVING, ActorState.DRAINING):
            await self._within(grace_s + KILL_TIMEOUT_S, "stop", running.stop(grace_s))
        if running is not None:
            await self._within(KILL_TIMEOUT_S, "kill", running.kill())
        if self._status.state is not ActorState.FAILED:
            self._set(state=ActorState.STOPPED, address="", pid=0, node_id="")

    async def _live(self, serving: asyncio.Future[None]) -> _Death:
        """One life of the actor, from fence to grave: why it ended."""
        self._killed_for = ""
        incarnation = self._incarnations.next()
        self._registry.fence(self._spec.name, incarnation=incarnation)
        self._set(state=ActorState.STARTING, incarnation=incarnation)
        try:
            running = await self._spawn(incarnation)
        except ActorCrashed as error:
            return _Death(reason=f"got no process: {error}")
        self._running = running
        try:
            if self._is_ending:
                await self._within(KILL_TIMEOUT_S, "kill", running.kill())
                return _Death(reason="told to end")
            return await self._start_and_watch(running, serving)
        finally:
            self._registry.remove(self._spec.name, incarnation=incarnation)
            self._set(address="", pid=0, node_id="")
            if not self._is_ending:
                if self._status.state is ActorState.SERVING:
                    # At once: until the process has ended nobody else would tell that it comes back.
                    self._set(state=ActorState.RESTARTING)
                self._running = None
                await self._within(KILL_TIMEOUT_S, "kill", running.kill())

    async def _spawn(self, incarnation: int) -> RunningActor:
        settings = for_start(
            self._spec,
            incarnation=incarnation,
            host=self._host.listen_host,
            credentials=self._credentials,
        )
        identity = Identity(
            name=self._spec.name,
            role=self._spec.role.value,
            model=self._spec.model,
            incarnation=incarnation,
            deployment=self._spec.deployment,
            supervisor=self._supervisor,
            credentials=self._credentials,
            logs=self._settings.logs,
        )
        return await self._host.spawn(self._spec, settings, identity)

    async def _start_and_watch(
        self, running: RunningActor, serving: asyncio.Future[None]
    ) -> _Death:
        cluster = self._settings.cluster
        limit_s, room_s = cluster.start_timeout_s, cluster.placement_timeout_s
        try:
            await asyncio.wait_for(running.placed(), room_s)
        except TimeoutError:
            lacking = await self._host.lacking(self._spec)
            reason = f"found no room in the Ray cluster within {room_s:g} s (cluster.placement_timeout_s): {lacking}"
            return _Death(reason=reason, is_final=True)
        except ActorCrashed as error:
            return _Death(reason=f"crashed while starting: {error}")
        try:
            await asyncio.wait_for(running.prepare(), limit_s)
            await self._turn.wait()  # The others' own starts are bounded.
            if self._is_ending:
                return _Death(reason="told to end")
            started = await asyncio.wait_for(running.start(), limit_s)
        except TimeoutError:
            reason = f"did not start within {limit_s:g} s (cluster.start_timeout_s)"
            return _Death(reason=reason, is_final=True)
        except ActorRefused as error:
            return _Death(reason=f"cannot start: {error}", is_final=True)
        except ActorCrashed as error:
            return _Death(reason=f"crashed while starting: {error}")
        self._serves(started)
        if not serving.done():
            serving.set_result(None)
        since_s = self._clock_s()
        how = await running.run()
        # Of a process that was ended from here Ray says that it died unexpectedly.
        return _Death(
            reason=f"ended: {self._killed_for or how}", served_s=self._clock_s() - since_s
        )

    def _serves(self, started: Started) -> None:
        self._has_served = True
        if self._spec.role is Role.COORDINATOR:
            self._spec = listening_at(self._spec, started.address)
        self._set(
            state=ActorState.SERVING,
            address=started.address,
            pid=started.pid,
            node_id=started.node_id,
            description=started.description,
            reason="",
        )
        log.info("serving", actor=self._spec.name, address=started.address, pid=started.pid)

    def _wait_s(self, count: RestartCount, death: _Death) -> float | None:
        """Seconds until the next start. None: the launch has failed.

        A drafter that crashes while the service is launched does not end the launch: the targets serve without it.
        """
        is_needed = self._spec.role is not Role.DRAFTER
        is_hopeless = death.is_final or (is_needed and count.in_a_row > LAUNCH_RESTARTS)
        if is_hopeless and not self._has_served:
            return None
        return count.wait_s(self._settings.cluster.restarts)

    def _give_up(self, reason: str, serving: asyncio.Future[None]) -> None:
        self._set(state=ActorState.FAILED, reason=reason)
        log.error("given up", actor=self._spec.name, reason=reason)
        if not serving.done():
            role, name = self._spec.role, self._spec.name
            called = "the coordinator" if role is Role.COORDINATOR else f"the {role} {name!r}"
            serving.set_exception(LaunchFailed(f"{called} {reason}"))

    def _set(self, **changes: Any) -> None:
        status = self._status = replace(self._status, **changes)
        if status.state in (ActorState.SERVING, ActorState.DRAINING, ActorState.STOPPED):
            self._registry.forget_absent(status.name)
        else:
            self._registry.note_absent(
                Absent(
                    name=status.name,
                    role=status.role,
                    model=status.model,
                    state=status.state,
                    reason=status.reason,
                    restarts=status.restarts,
                )
            )

    async def _within(self, timeout_s: float, what: str, call: Awaitable[None]) -> None:
        """Waits for at most so long; what does not end then or fails is abandoned."""
        try:
            await asyncio.wait_for(call, timeout_s)
        except TimeoutError:
            log.warning("abandoned", call=what, actor=self._spec.name, after_s=timeout_s)
        except Exception:
            log.exception("abandoned", call=what, actor=self._spec.name)
