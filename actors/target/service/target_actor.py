"""The Ray shell of a target."""

from __future__ import annotations

from outrider.actors.process.actor_runner import Server
from outrider.actors.process.actor_shell import ActorShell
from outrider.actors.target.state.target_settings import TargetSettings


class TargetActor(ActorShell[TargetSettings]):
    """A target in a Ray process."""

    async def _make_server(self, settings: TargetSettings, node_host: str) -> Server:
        from outrider.actors.target.service.target_server import TargetServer

        return TargetServer(settings)
