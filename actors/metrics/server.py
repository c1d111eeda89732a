"""A port of its own for the metrics of an actor that serves the public: those are internal, and need the service's secret."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from outrider.actors.credentials import OPEN, Credentials
from outrider.actors.grpc_server import advertised, bind, internal_server, serve_health
from outrider.actors.metrics.families import Collector
from outrider.actors.metrics.service import NAME, serve_metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Where metrics are served."""

    listen: str = "127.0.0.1:0"
    """Address to bind; port 0 takes a free one."""

    advertise_host: str | None = None
    """Host that others reach it at. None: the one of `listen`."""

    credentials: Credentials = OPEN
    """What calls must carry."""


class MetricsServer:
    """Serves the metrics of one actor."""

    def __init__(self, settings: MetricsSettings, *collectors: Collector) -> None:
        """Starts nothing."""
        self._settings = settings
        self._collectors = collectors
        self._server: grpc.aio.Server | None = None

    async def start(self) -> str:
        """Serves.

        Returns:
            The address that the supervisor reaches it at.

        Raises:
            OSError: The address cannot be bound.
        """
        settings = self._settings
        server = internal_server(settings.credentials)
        serve_metrics(server, *self._collectors)
        await serve_health(server, NAME)
        port = bind(server, settings.listen)
        await server.start()
        self._server = server
        return advertised(settings.listen, settings.advertise_host, port)

    async def stop(self) -> None:
        """Ends. Idempotent."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0.0)
