"""The Ray shell of a target."""

from __future__ import annotations

import ray
import structlog

from outrider.actors.process.actor_runner import ActorRunner, Identity, Started
from outrider.actors.process.logs import configure_logs
from outrider.actors.process.node_address import at_node
from outrider.actors.target.state.target_settings import TargetSettings

log = structlog.get_logger(__name__)


class TargetActor:
    """A target in a Ray process. Made by the supervisor."""

    def __init__(self, settings: TargetSettings, identity: Identity) -> None:
        self._settings = settings
        self._identity = identity
        self._runner: ActorRunner | None = None

    async def prepare(self) -> None:
        """Imports what it runs."""
        # Imported here: an import that fails is then an error of this call, with its own text.
        from outrider.actors.target.service.target_server import TargetServer

        configure_logs(self._identity.logs, actor=self._identity.name)
        node_id = ray.get_runtime_context().get_node_id()
        settings = at_node(self._settings, ray.util.get_node_ip_address())
        self._runner = ActorRunner(self._identity, TargetServer(settings), node_id=node_id)

    async def start(self) -> Started:
        """Loads the model, serves and registers; fails loudly. After `prepare`."""
        assert self._runner is not None, "`prepare` makes it"
        return await self._runner.start()

    async def run(self) -> None:
        """Answers when the actor ends; one that failed or was fenced ends its process, and the supervisor starts another."""
        if self._runner is not None and (reason := await self._runner.run()):
            log.error("actor ends", actor=self._identity.name, reason=reason)
            await self._runner.stop(0.0)
            ray.actor.exit_actor()

    async def stop(self, grace_s: float) -> None:
        """Stops serving within the grace."""
        if self._runner is not None:
            await self._runner.stop(grace_s)
