"""The Ray shell of the supervisor."""

from __future__ import annotations

import asyncio

from outrider.actors.process.logs import configure_logs
from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.actors.rpc.tls import UnfitTls
from outrider.cluster.config.schema import Config
from outrider.cluster.placement.actor_specs import actor_specs
from outrider.cluster.placement.placement import PlacementError, PlacementPolicy
from outrider.cluster.ray.ray_actors import RayActorHost
from outrider.cluster.roster.actor_status import ActorStatus
from outrider.cluster.supervise.actor_supervisor import LaunchFailed
from outrider.cluster.supervise.applying import Applier
from outrider.cluster.supervise.autoscaler import Autoscaler
from outrider.cluster.supervise.supervisor import Supervisor
from outrider.cluster.supervise.supervisor_settings import SupervisorSettings

NAME = "supervisor"
"""Its name in the service's Ray namespace."""


class SupervisorActor:
    """The supervisor in a Ray process. Owns the actors it starts: they end with it."""

    def __init__(
        self,
        config: Config,
        settings: SupervisorSettings,
        *,
        use_loopback: bool,
        may_grow: bool,
    ) -> None:
        self._config = config
        self._settings = settings
        self._use_loopback = use_loopback
        self._may_grow = may_grow
        self._supervisor: Supervisor | None = None
        self._autoscaling: asyncio.Task[None] | None = None

    async def launch(self) -> str:
        """Starts every actor. Returns why that failed; empty if all serve."""
        configure_logs(self._settings.logs, actor=NAME)
        cluster = self._config.cluster
        policy = PlacementPolicy(
            replicas=cluster.placement, drafters_on_targets=cluster.drafters_on_targets
        )
        host = RayActorHost(policy=policy, use_loopback=self._use_loopback, may_grow=self._may_grow)
        self._supervisor = Supervisor(actor_specs(self._config), host, self._settings)
        applier = Applier(self._config, self._supervisor)
        self._supervisor.servicer.apply = applier.apply
        try:
            await self._supervisor.launch()
        except (PlacementError, LaunchFailed, OSError, UnfitTls) as error:
            return str(error) or repr(error)
        autoscaler = Autoscaler(applier, self._supervisor.federation.told)
        self._autoscaling = asyncio.create_task(autoscaler.run(), name="autoscaling")
        return ""

    async def status(self) -> tuple[ActorStatus, ...]:
        """Every actor; none before `launch`."""
        return self._supervisor.status() if self._supervisor is not None else ()

    async def admin(self) -> tuple[str, Credentials]:
        """Address of the `ClusterService`, and what calls to it carry."""
        return self._supervisor.admin if self._supervisor is not None else ("", OPEN)

    async def metrics_address(self) -> str:
        """HOST:PORT of the metrics over HTTP; empty if they are not served."""
        return self._supervisor.metrics_address if self._supervisor is not None else ""

    async def stop(self, grace_s: float) -> None:
        """Ends every actor; running requests may go on within the grace."""
        if self._autoscaling is not None:
            self._autoscaling.cancel()
            await asyncio.wait([self._autoscaling])
        if self._supervisor is not None:
            await self._supervisor.stop(grace_s)
