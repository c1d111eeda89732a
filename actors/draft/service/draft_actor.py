"""The Ray shell of a drafter."""

from __future__ import annotations

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.process.actor_runner import Server
from outrider.actors.process.actor_shell import ActorShell


class DraftActor(ActorShell[DraftSettings]):
    """A drafter in a Ray process."""

    async def _make_server(self, settings: DraftSettings, node_host: str) -> Server:
        from outrider.actors.draft.service.draft_server import DraftServer

        return DraftServer(settings)
