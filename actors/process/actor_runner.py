"""The life of an actor inside a Ray process, the same for every role: load, join the roster, wait, leave.

Used by the Ray shells (`*_actor.py` of each role). A *server* is a plain class with `start` and `stop`; what it serves is not
known here.
"""

from __future__ import annotations

import asyncio
import gc
import os
from dataclasses import dataclass, field
from typing import Protocol

from outrider.actors.process.logs import LogSettings
from outrider.actors.process.membership import Membership
from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.v1 import cluster_pb2

YOUNG_OBJECTS = 20_000
"""Containers made, less those freed, before the young ones are searched; Python's default is 700. A busy drafter makes that many
in some dozens of passes."""


class Server(Protocol):
    """What an actor runs."""

    @property
    def internal_address(self) -> str:
        """Where other actors reach it, once it has started."""
        ...

    @property
    def description(self) -> str:
        """What was chosen for it, for people; empty if there was nothing to choose. Once it has started."""
        ...

    async def start(self) -> str:
        """Loads and serves. Returns the address."""
        ...

    async def stop(self, grace_s: float = ...) -> None:
        """Ends within the grace."""
        ...

    async def failed(self) -> str:
        """Waits until it cannot serve any more, if ever; says why."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who an actor is, and whom it answers to."""

    name: str
    """Its name, unique in the service."""

    role: str
    """`coordinator`, `target` or `drafter`."""

    model: str
    """What the roster tells of its model."""

    incarnation: int
    """Identifies this start."""

    supervisor: str
    """Address of the supervisor's `ClusterService`."""

    deployment: str = ""
    """Which model it serves; empty for drafters."""

    credentials: Credentials = OPEN
    """What its calls to the supervisor carry."""

    logs: LogSettings = field(default_factory=LogSettings)
    """How it writes logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An actor that serves."""

    address: str
    """Its gRPC address, as others reach it."""

    pid: int
    """Its process."""

    node_id: str
    """The Ray node it runs on."""

    description: str = ""
    """What was chosen for it, for people."""


class ActorRunner:
    """One server on the roster."""

    def __init__(self, identity: Identity, server: Server, *, node_id: str) -> None:
        self._identity = identity
        self._server = server
        self._node_id = node_id
        self._stopped = asyncio.Event()
        self._membership: Membership | None = None

    async def start(self) -> Started:
        """Loads, serves and registers; fails loudly."""
        address = await self._server.start()
        identity = self._identity
        member = cluster_pb2.Member(
            name=identity.name,
            role=cluster_pb2.Role.Value(f"ROLE_{identity.role.upper()}"),
            address=address,
            incarnation=identity.incarnation,
            model=identity.model,
            pid=os.getpid(),
            node_id=self._node_id,
            internal_address=self._server.internal_address,
            deployment=identity.deployment,
        )
        self._membership = Membership(identity.supervisor, member, identity.credentials)
        await self._membership.join()
        settle_memory()
        return Started(
            address=address,
            pid=os.getpid(),
            node_id=self._node_id,
            description=self._server.description,
        )

    async def run(self) -> str:
        """Waits for the end.

        Returns:
            Why the process must end: the server failed, or a later incarnation has taken its place. Empty if it was stopped.
        """
        if self._membership is None:
            raise RuntimeError(f"{self._identity.name} was not started")
        failed = asyncio.ensure_future(self._server.failed())
        fenced = asyncio.ensure_future(self._membership.fenced())
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((failed, fenced, stopped), return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.is_set():
                return ""
            return failed.result() if failed.done() else "a later start has taken its place"
        finally:
            for future in (failed, fenced, stopped):
                future.cancel()

    async def stop(self, grace_s: float) -> None:
        """Stops serving within the grace and leaves. Idempotent."""
        await self._server.stop(grace_s)
        if self._membership is not None:
            await self._membership.leave()
        self._stopped.set()


def hold_searches() -> None:
    """Searches for no garbage until `settle_memory`: what imports make stays, and each search would go through all of it."""
    gc.disable()


def settle_memory() -> None:
    """Leaves what is there now out of every later search for garbage, and searches less often. Called once, when an actor serves.

    Python looks for reference cycles each time some hundred containers have been made, and now and then through all there are. A
    process with torch and a model has hundreds of thousands that stay to the end; looking through them stops every thread for a tenth of a
    second on a slow core. What a round makes - lists of tokens, small records - holds no cycles and is freed without a search.
    """
    gc.collect()
    gc.freeze()
    _, second, third = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, second, third)
    gc.enable()
