"""The Ray shell of a coordinator."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import grpc
import structlog

from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.engine.checkpoint.without_torch import without_torch
from outrider.actors.engine.engine_settings import DEMO_PREFIX
from outrider.actors.process.actor_runner import Identity, Server, Started
from outrider.actors.process.actor_shell import ActorShell
from outrider.actors.process.node_address import internal_listen
from outrider.actors.rpc.grpc_server import internal_channel
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.roster.roster_wire import roster_from_proto
from outrider.v1 import cluster_pb2, cluster_pb2_grpc

if TYPE_CHECKING:
    from outrider.cluster.gateway.coordinator import Coordinator

RETRY_S = 0.5
"""Pause before the roster is watched again after the stream broke."""

log = structlog.get_logger(__name__)


class CoordinatorActor(ActorShell[CoordinatorSettings]):
    """A coordinator in a Ray process."""

    def __init__(self, settings: CoordinatorSettings, identity: Identity) -> None:
        super().__init__(settings, identity)
        self._coordinator: Coordinator | None = None
        self._watch: asyncio.Task[None] | None = None

    async def _make_server(self, settings: CoordinatorSettings, node_host: str) -> Server:
        """Loads the tokenizer, too."""
        from outrider.cluster.gateway.coordinator import Coordinator

        listen = internal_listen(settings.internal_listen, node_host)
        settings = replace(settings, internal_listen=listen)
        if settings.tokenizer.startswith(DEMO_PREFIX):
            folder = resolve_model(settings.tokenizer).location
            settings = replace(settings, tokenizer=folder)
        coordinator = self._coordinator = Coordinator(settings)
        # Code that comes with a tokenizer may want torch.
        with nullcontext() if settings.allow_remote_code else without_torch():
            await coordinator.load()
        return coordinator

    async def start(self) -> Started:
        """Serves, learns the roster and registers; fails loudly. After `prepare`."""
        assert self._coordinator is not None, "`prepare` makes it"
        started = await super().start()
        is_informed = asyncio.Event()
        self._watch = asyncio.create_task(
            self._follow(self._coordinator, is_informed), name="roster"
        )
        await is_informed.wait()
        return started

    async def stop(self, grace_s: float) -> None:
        """Drains: no new work, running requests go on within the grace."""
        await super().stop(grace_s)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _follow(self, coordinator: Coordinator, is_informed: asyncio.Event) -> None:
        """Tells the coordinator of every roster, for as long as it lives."""
        request = cluster_pb2.WatchRosterRequest(name=self._identity.name)
        identity = self._identity
        while True:
            # A new channel each time: with TLS, it has the certificate of then.
            async with internal_channel(identity.supervisor, identity.credentials) as channel:
                stub = cluster_pb2_grpc.ClusterServiceStub(channel)
                try:
                    async for message in stub.WatchRoster(request):
                        await coordinator.update_roster(roster_from_proto(message))
                        is_informed.set()
                except grpc.aio.AioRpcError as error:
                    log.warning("roster stream broke", reason=error.details())
                except Exception:  # Else nobody would ever tell the coordinator of a roster again.
                    log.exception("a roster was not taken in")
            await asyncio.sleep(RETRY_S)
