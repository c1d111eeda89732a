"""What a supervisor is told. Plain data: crosses processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.actors.process.logs import LogSettings
from outrider.actors.rpc.tls import TlsFiles
from outrider.cluster.config.config_service import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """A supervisor."""

    host: str = "127.0.0.1"
    """Host to listen on, as the actors reach it."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    """How long starts may take, leases, and when a dead actor is started again."""

    logs: LogSettings = field(default_factory=LogSettings)
    """How the actors write logs."""

    metrics: str | None = None
    """HOST:PORT of the metrics over HTTP; None: not served."""

    tls: TlsFiles | None = None
    """Mutual TLS between the actors and with the supervisor; None: plain connections."""
