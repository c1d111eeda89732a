"""The real service for benchmarks: Ray, actors, gRPC, as `outrider serve` starts it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outrider.client import Client
from outrider.cluster.config.schema import parse_config
from outrider.cluster.start.launch import RunningService, start_service

OUTRIDER = (sys.executable, "-c", "from outrider.client.cli import main; main()")
"""The command line, as a command."""

TARGET = "target"
"""Name of the target's actor in benchmarks."""

DRAFTER = "draft"
"""Name of the draft model's actor in benchmarks."""


def pair_config(
    target: str | Path,
    draft: str | Path = "demo:draft",
    *,
    lockstep: bool = False,
    service: Mapping[str, Any] | None = None,
    both: Mapping[str, Any] | None = None,
    **target_options: Any,
) -> dict[str, Any]:
    """The configuration of one target and one drafter, one thread for each model.

    Args:
        target: The target model.
        draft: The draft model.
        lockstep: Drafter and target wait for each other.
        service: What clients see, beyond an address of its own.
        both: Options of target and drafter alike.
        target_options: Options of the target.
    """
    common = {"num_threads": 1, **(both or {})}
    return {
        # Every run decodes the same prompts: with reuse only the first would compute them.
        "service": {"listen": "127.0.0.1:0", "prefix_reuse": False, **(service or {})},
        "targets": [{"name": TARGET, "model": str(target), **common, **target_options}],
        "drafters": [{"name": DRAFTER, "model": str(draft), **common}],
        "speculation": {"lockstep": lockstep},
    }


@contextmanager
def service(
    target: str | Path, draft: str | Path = "demo:draft", **options: Any
) -> Iterator[tuple[RunningService, Client]]:
    """A service of a pair (see `pair_config`), and a client of it."""
    config = parse_config(pair_config(target, draft, **options), source="the benchmark")
    with start_service(config) as running, Client(running.address) as client:
        yield running, client
