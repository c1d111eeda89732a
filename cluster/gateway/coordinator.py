"""The coordinator: a public server in front, links to targets and drafters behind. Knows nothing of Ray.

Read `gateway` for the way of a request, `sequence` and `session` for the way of a token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from pathlib import Path

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client.core import Metric

from outrider.actors.metrics.metrics_service import serve_metrics
from outrider.actors.rpc.grpc_server import advertised, bind, check_free, internal_server
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.gateway.bearer import TokenGuard, Tokens
from outrider.cluster.gateway.coordinator_metrics import CoordinatorCollector
from outrider.cluster.gateway.gateway import Gateway
from outrider.cluster.gateway.rpc import handlers
from outrider.cluster.requests.served_models import ServedModels
from outrider.cluster.roster.roster import EMPTY, Roster
from outrider.cluster.text import text_tokenizer
from outrider.cluster.text.text_tokenizer import TextCodec
from outrider.v1 import generation_pb2

SERVICE = generation_pb2.DESCRIPTOR.services_by_name["GenerationService"].full_name

CANCEL_S = 1.0
"""Seconds that cancelled calls, and those that are no requests, have to end when the server stops."""

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Size of a request on the wire, at most."""

HEADROOM = 2
"""What gRPC lets pass, in units of the greatest request: what is above the one and below the other is told which field is too
large; gRPC itself names none."""

log = structlog.get_logger(__name__)


class Coordinator:
    """Runs a coordinator."""

    def __init__(self, settings: CoordinatorSettings, codec: TextCodec | None = None) -> None:
        """Takes the settings.

        Args:
            settings: What the coordinator is told.
            codec: A tokenizer to use instead of loading `settings.tokenizer`.
        """
        self._settings = settings
        self._codec = codec
        self._server: grpc.aio.Server | None = None
        self._peer_server: grpc.aio.Server | None = None
        self.description = ""
        self.internal_address = ""
        """Where other actors reach it, once it has started."""
        self._gateway: Gateway | None = None
        self._links: ServedModels | None = None
        self._health = health.aio.HealthServicer()
        self._roster = EMPTY
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure = ""
        self._has_failed = asyncio.Event()

    async def load(self) -> None:
        """Loads the tokenizer, if there is one to load. `start` does, too.

        Raises:
            ValueError, OSError: It cannot be loaded.
        """
        settings = self._settings
        if self._codec is None and settings.tokenizer:
            self._codec = await asyncio.to_thread(
                text_tokenizer.load,
                settings.tokenizer,
                allow_remote_code=settings.allow_remote_code,
            )

    async def start(self) -> str:
        """Loads the tokenizer, connects, and serves.

        Returns:
            The address that clients reach it at.

        Raises:
            ValueError, OSError: The tokenizer cannot be loaded, certificate or tokens cannot be used, or the address cannot be
                bound.
        """
        await self.load()
        settings = self._settings
        self._links = ServedModels(
            settings,
            self._codec,
            on_readiness=self._on_readiness,
            on_drafter_up=lambda name: gateway.on_drafter_up(name),
            on_defect=self._on_defect,
        )
        gateway = self._gateway = Gateway(settings, self._codec, self._links)
        server = self._server = grpc.aio.server(
            interceptors=[TokenGuard(Tokens(Path(settings.tokens)))] if settings.tokens else [],
            options=[
                ("grpc.max_receive_message_length", HEADROOM * MAX_REQUEST_BYTES),
                ("grpc.so_reuseport", 1),
                # Else a client that probes an idle stream is cut off after three probes.
                ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 20_000),
            ],
        )
        server.add_generic_rpc_handlers((handlers(gateway, max_request_bytes=MAX_REQUEST_BYTES),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if settings.reflection:
            reflection.enable_server_reflection(
                (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server
            )
        await self._set_health(is_serving=False)
        if not settings.shares_port:
            check_free(settings.listen)
        port = bind(server, settings.listen, settings.tls)
        gateway.address = advertised(settings.listen, settings.advertise_host, port)
        await self._serve_peers(gateway)
        await server.start()
        self._links.start()
        self._links.update(self._roster)
        log.info("coordinator serves", coordinator=settings.name, address=gateway.address)
        return gateway.address

    async def _serve_peers(self, gateway: Gateway) -> None:
        """The same service for other coordinators of ours, and metrics, at an address that they do not share."""
        settings = self._settings
        self._peer_server = internal_server(settings.credentials)
        self._peer_server.add_generic_rpc_handlers(
            (handlers(gateway, max_request_bytes=MAX_REQUEST_BYTES),)
        )
        serve_metrics(self._peer_server, self)
        port = bind(self._peer_server, settings.internal_listen, settings.credentials.tls)
        self.internal_address = advertised(settings.internal_listen, None, port)
        await self._peer_server.start()

    async def failed(self) -> str:
        """Waits until a defect has ended a link; says which. Its clients resume at the next start."""
        await self._has_failed.wait()
        return self._failure

    async def stop(self, grace_s: float = 5.0) -> None:
        """Takes no new requests, lets the running ones finish within the grace, cancels the rest, and ends."""
        if self._gateway is not None:
            self._gateway.is_accepting = False
            await self._health.enter_graceful_shutdown()
        if self._server is not None and self._gateway is not None:
            # New connections go to others at the same address from here on; cancelled calls get a moment below.
            ending = asyncio.ensure_future(self._server.stop(grace_s))
            # Requests are waited for; a watch of the health, which has no end, is not.
            await self._gateway.wait_idle(grace_s)
            await self._server.stop(CANCEL_S)
            await ending
            self._server = None
        if self._peer_server is not None:
            await self._peer_server.stop(0)
            self._peer_server = None
        if self._gateway is not None:
            await self._gateway.wait_idle(CANCEL_S)
            await self._gateway.close()
        if self._links is not None:
            await self._links.stop()
            self._links = None

    async def update_roster(self, roster: Roster) -> None:
        """Takes in who is alive and who should be. On the event loop."""
        before, self._roster = self._roster, roster
        if self._links is not None:
            self._links.update(self._roster)
        for gone in _names(before) - _names(roster):
            await self._health.set(gone, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        for member in roster.members:
            await self._health.set(member.name, health_pb2.HealthCheckResponse.SERVING)
        for absent in roster.absent:
            await self._health.set(absent.name, health_pb2.HealthCheckResponse.NOT_SERVING)

    def collect(self) -> Iterable[Metric]:
        """Its metrics for Prometheus; none before it serves. On the event loop."""
        if self._gateway is None or self._links is None:
            return ()
        return CoordinatorCollector(self._gateway, self._links).collect()

    def _on_defect(self, reason: str) -> None:
        self._failure = reason
        self._has_failed.set()

    def _on_readiness(self, is_ready: bool) -> None:
        self._background(self._set_health(is_serving=is_ready))

    async def _set_health(self, *, is_serving: bool) -> None:
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if is_serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for service in ("", SERVICE):
            await self._health.set(service, status)

    def _background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _names(roster: Roster) -> set[str]:
    """Names of those who are there, and who should be."""
    return {one.name for one in roster.members} | {one.name for one in roster.absent}
