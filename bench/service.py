"""The real service for benchmarks: Ray, actors, gRPC, as `outrider serve` starts it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrider.client import Client
from outrider.cluster.config import parse_config
from outrider.cluster.launch import RunningService, start_service

DRAFTER = "draft"
"""Name of the draft model's actor in benchmarks."""


@contextmanager
def service(
    target: str | Path, draft: str | Path = "demo:draft", **target_options: Any
) -> Iterator[tuple[RunningService, Client]]:
    """A service with one target and one drafter, one thread for each model, and a client of it."""
    config = parse_config(
        {
            "service": {"listen": "127.0.0.1:0"},
            "targets": [
                {"name": "target", "model": str(target), "num_threads": 1, **target_options}
            ],
            "drafters": [{"name": DRAFTER, "model": str(draft), "num_threads": 1}],
        },
        source="the benchmark",
    )
    with start_service(config) as running, Client(running.address) as client:
        yield running, client
