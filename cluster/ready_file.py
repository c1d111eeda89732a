"""The file that tells scripts where a service is, once it serves."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from outrider.cluster.actor_status import ActorStatus


def write_ready_file(
    path: Path, *, address: str, metrics: str = "", actors: Sequence[ActorStatus]
) -> None:
    """Writes the file whole or not at all: who sees it can read it.

    Args:
        path: Where. Its folder exists.
        address: The public address.
        metrics: HOST:PORT of the metrics; empty if they are not served.
        actors: Who serves.

    Raises:
        OSError: It cannot be written.
    """
    content = {
        "address": address,
        "metrics": metrics,
        "pid": os.getpid(),
        "actors": [
            {
                "name": actor.name,
                "role": actor.role.value,
                "model": actor.model,
                "address": actor.address,
                "pid": actor.pid,
                "incarnation": actor.incarnation,
            }
            for actor in actors
        ],
    }
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as file:
        json.dump(content, file, indent=2)
        file.write("\n")
    os.replace(file.name, path)
