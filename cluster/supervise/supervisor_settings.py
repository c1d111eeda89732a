"""What a supervisor is told. Plain data: crosses processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.actors.process.logs import LogSettings
from outrider.actors.rpc.tls import TlsFiles
from outrider.cluster.config.config_service import Restarts


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """A supervisor."""

    host: str = "127.0.0.1"
    """Host to listen on, as the actors reach it."""

    placement_timeout_s: float = 60.0
    """How long to wait for resources, and an actor for a process."""

    start_timeout_s: float = 300.0
    """How long an actor may then take to serve."""

    lease_s: float = 10.0
    """An actor that is silent this long is replaced."""

    restarts: Restarts = field(default_factory=Restarts)
    """When a dead actor is started again."""

    logs: LogSettings = field(default_factory=LogSettings)
    """How the actors write logs."""

    metrics: str | None = None
    """HOST:PORT of the metrics over HTTP; None: not served."""

    tls: TlsFiles | None = None
    """Mutual TLS between the actors and with the supervisor; None: plain connections."""
