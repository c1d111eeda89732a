"""The metrics of a service at its supervisor: the page, and the address where it is served, if anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.actors.rpc.credentials import Credentials
from outrider.cluster.metrics.endpoint import MetricsEndpoint
from outrider.cluster.metrics.federation import Federation
from outrider.cluster.roster.actor_status import ActorStatus
from outrider.cluster.roster.cluster_service import ClusterServicer


class ServiceMetrics:
    """Serves the metrics of every actor over HTTP, or does nothing."""

    def __init__(
        self,
        listen: str | None,
        statuses: Callable[[], Sequence[ActorStatus]],
        servicer: ClusterServicer,
        credentials: Credentials,
    ) -> None:
        """Args:
        listen: HOST:PORT; None: metrics are not served.
        statuses: Every actor that should be there.
        servicer: Knows who is.
        credentials: What calls to actors carry.
        """
        self.address = ""
        """Where it serves; empty if it does not."""
        self.federation = Federation(statuses, lambda: servicer.roster, credentials)
        """Asks the actors, also for others than Prometheus."""
        self._endpoint = (
            MetricsEndpoint(listen, self.federation.page) if listen is not None else None
        )

    async def start(self) -> None:
        """Serves, if an address was given.

        Raises:
            OSError: The address cannot be bound.
        """
        if self._endpoint is not None:
            self.address = await self._endpoint.start()

    async def stop(self) -> None:
        """Ends. Idempotent."""
        if self._endpoint is not None:
            await self._endpoint.stop()
        await self.federation.close()
