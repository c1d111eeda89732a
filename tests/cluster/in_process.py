"""Actors without processes: what the supervisor starts in the tests, and what can be done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.actors.process.actor_runner import Identity, Started
from outrider.actors.process.membership import Membership
from outrider.cluster.placement.actor_host import ActorCrashed, ActorRefused, RunningActor
from outrider.cluster.placement.actor_specs import ActorSettings, ActorSpec
from outrider.cluster.placement.placement import PlacementError
from outrider.v1 import cluster_pb2


class InProcessActor:
    """One start of an actor that only registers and waits."""

    def __init__(
        self,
        settings: ActorSettings,
        identity: Identity,
        *,
        failure: Exception | None,
        order: list[tuple[str, str]],
        may_load: asyncio.Event | None = None,
    ) -> None:
        self._order = order
        self._may_load = may_load
        self.settings = settings
        self.identity = identity
        self.grace_s: float | None = None
        self._failure = failure
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._membership: Membership | None = None

    async def placed(self) -> None:
        """There is room."""

    async def prepare(self) -> None:
        """Needs nothing."""
        self._order.append(("prepare", self.identity.name))

    async def start(self) -> Started:
        """Registers, or fails as it was told."""
        if self._may_load is not None:
            await self._may_load.wait()
        if self._failure is not None:
            raise self._failure
        member = cluster_pb2.Member(
            name=self.identity.name,
            role=cluster_pb2.Role.Value(f"ROLE_{self.identity.role.upper()}"),
            address="127.0.0.1:9",
            incarnation=self.identity.incarnation,
            model=self.identity.model,
        )
        self._membership = Membership(self.identity.supervisor, member, self.identity.credentials)
        await self._membership.join()
        self._order.append(("start", self.identity.name))
        return Started(address="127.0.0.1:9", pid=1, node_id="here")

    async def run(self) -> str:
        """Waits for `die`, `stop` or `kill`."""
        return await asyncio.shield(self._ended)

    async def stop(self, grace_s: float) -> None:
        """Ends politely."""
        self.grace_s = grace_s
        await self._end("stopped")

    async def kill(self) -> None:
        """Ends at once."""
        await self._end("killed")

    async def die(self) -> None:
        """Ends by itself."""
        await self._end("segmentation fault")

    async def hang(self) -> None:
        """Falls silent, without ending."""
        if self._membership is not None:
            await self._membership.leave()

    async def _end(self, how: str) -> None:
        await self.hang()
        if not self._ended.done():
            self._order.append(("end", self.identity.name))
            self._ended.set_result(how)


@dataclass
class InProcessHost:
    """Where they run."""

    failures: dict[str, list[Exception]] = field(default_factory=dict)
    """For each name, how its next starts fail."""

    slow: dict[str, asyncio.Event] = field(default_factory=dict)
    """For each name, what its starts wait for."""

    has_room: bool = True
    starts: list[InProcessActor] = field(default_factory=list)
    order: list[tuple[str, str]] = field(default_factory=list)
    """`prepare`, `start` and `end` of actors, by name."""
    address: str = "127.0.0.1:9"
    """Where all of them say that they are. Nobody answers there."""

    async def wait_for_room(
        self, specs: tuple[ActorSpec, ...], *, timeout_s: float, tell: Callable[[str], None]
    ) -> None:
        """Has room or not."""
        if not self.has_room:
            raise PlacementError("no node has any target_node")

    @property
    def listen_host(self) -> str:
        """Loopback."""
        return "127.0.0.1"

    async def lacking(self, spec: ActorSpec) -> str:
        """Nothing is."""
        return ""

    async def spawn(
        self, spec: ActorSpec, settings: ActorSettings, identity: Identity
    ) -> RunningActor:
        """Makes an actor."""
        failures = self.failures.get(spec.name, [])
        actor = InProcessActor(
            settings,
            identity,
            failure=failures.pop(0) if failures else None,
            order=self.order,
            may_load=self.slow.get(spec.name),
        )
        self.starts.append(actor)
        return actor

    def of(self, name: str) -> list[InProcessActor]:
        """The starts of one actor, in order."""
        return [actor for actor in self.starts if actor.identity.name == name]


def refusals(text: str, times: int = 1) -> list[Exception]:
    """Starts that say why they cannot work."""
    return [ActorRefused(text) for _ in range(times)]


def crashes(times: int) -> list[Exception]:
    """Starts that end without a word."""
    return [ActorCrashed("out of memory") for _ in range(times)]


async def until(condition: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    """Waits until something is so.

    Raises:
        TimeoutError: It is not so within the time.
    """
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - looks at a status that has no event
            await asyncio.sleep(0.01)
