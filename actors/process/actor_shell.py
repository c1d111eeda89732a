"""What the Ray shells of all roles have in common: a server in a Ray process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic

import ray
import structlog

from outrider.actors.process.actor_runner import (
    ActorRunner,
    Identity,
    Server,
    Started,
    hold_searches,
)
from outrider.actors.process.logs import configure_logs
from outrider.actors.process.node_address import SettingsT, at_node

log = structlog.get_logger(__name__)


class ActorShell(ABC, Generic[SettingsT]):
    """An actor in a Ray process. Made by the supervisor."""

    def __init__(self, settings: SettingsT, identity: Identity) -> None:
        self._settings = settings
        self._identity = identity
        self._runner: ActorRunner | None = None

    @abstractmethod
    async def _make_server(self, settings: SettingsT, node_host: str) -> Server:
        """Makes what it runs, and imports it here: an import that fails is then an error of `prepare`, with its own text.

        Args:
            settings: With the addresses that hold on this node.
            node_host: The node's address as others reach it.
        """

    async def prepare(self) -> None:
        """Imports what it runs."""
        hold_searches()
        configure_logs(self._identity.logs, actor=self._identity.name)
        node_host = ray.util.get_node_ip_address()
        server = await self._make_server(at_node(self._settings, node_host), node_host)
        node_id = ray.get_runtime_context().get_node_id()
        self._runner = ActorRunner(self._identity, server, node_id=node_id)

    async def start(self) -> Started:
        """Loads the model, if any, serves and registers; fails loudly. After `prepare`."""
        assert self._runner is not None, "`prepare` makes it"
        return await self._runner.start()

    async def run(self) -> None:
        """Answers when the actor ends; one that failed or was fenced ends its process, and the supervisor starts another."""
        if self._runner is not None and (reason := await self._runner.run()):
            log.error("actor ends", actor=self._identity.name, reason=reason)
            await self._runner.stop(0.0)
            ray.actor.exit_actor()

    async def stop(self, grace_s: float) -> None:
        """Stops serving; what runs may go on within the grace."""
        if self._runner is not None:
            await self._runner.stop(grace_s)
