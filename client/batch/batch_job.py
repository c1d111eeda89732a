"""What a batch is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from outrider.client.async_client import AsyncClient
from outrider.client.connection.access import Tls
from outrider.client.connection.channel import DEFAULT_ADDRESS
from outrider.client.connection.retry import RetryPolicy
from outrider.client.connection.timeouts import REQUEST_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to do."""

    source: str
    """The input: a path, or a URL that fsspec reads."""

    destination: str
    """The output: a path, or a URL that fsspec writes."""

    summary: Path | None = None
    """Gets the summary, for programs; None: nobody wants it."""

    address: str = DEFAULT_ADDRESS
    """Of the service."""

    tls: Tls | None = None
    """Certificates; with shards, of files that are there on every node."""

    token: str | Path | None = field(default=None, repr=False)
    """What proves to the service who calls."""

    timeout_s: float = REQUEST_TIMEOUT_S
    """Seconds for one request."""

    model: str = ""
    """Of records that name none; empty takes the service's first."""

    strict: bool = False
    """Does nothing if a line cannot be run."""

    concurrency: int | None = None
    """Records at once, of all shards together; None: as many as the service can hold."""

    attempts: int = 3
    """Tries of a record that fails for a cause that may pass."""

    patience_s: float = 600.0
    """Seconds without a single answer after which the run ends."""

    baseline: int = 0
    """Records to decode plainly as well, afterwards."""

    shards: int = 0
    """Actors of a Ray cluster that send; 0: this process does."""

    def client(self) -> AsyncClient:
        """A client of the service. A stream that broke is given up in time for the run to be."""
        return AsyncClient(
            self.address,
            timeout_s=self.timeout_s,
            retry=RetryPolicy(patience_s=min(self.patience_s, self.timeout_s)),
            tls=self.tls,
            token=self.token,
        )
