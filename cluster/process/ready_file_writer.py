"""The file that tells scripts where a service is, once it serves, and what it has in common with the admin file: it goes with the service.

`outrider.client.connection.ready_file` reads it."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outrider.cluster.roster.actor_status import ActorStatus

MAX_BYTES = 1 << 20
"""As much as is read: a ready file has a few kB, and a wrong path may be a model's weights."""


@contextmanager
def written(
    path: Path, *, address: str, metrics: str = "", actors: Sequence[ActorStatus]
) -> Iterator[None]:
    """Inside, the file is there, and locked while this process lives.

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
        "actors": [
            {
                "name": actor.name,
                "role": actor.role.value,
                "model": actor.model,
                "address": actor.address,
                # 0 would be the process group of whoever sends it a signal.
                "pid": actor.pid or None,
                "incarnation": actor.incarnation,
            }
            for actor in actors
        ],
    }
    with held(path, content):
        yield


@contextmanager
def held(path: Path, content: Mapping[str, Any]) -> Iterator[None]:
    """Inside, a file holds this and who wrote it, readable by this user only, and locked while this process lives.

    It is written whole or not at all: who sees it can read it.

    Args:
        path: Where. Its folder exists.
        content: The service's `address`, and whatever else.

    Raises:
        OSError: It cannot be written.
    """
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as file:
        try:
            # Locked before it bears its name, so that nobody takes the service for dead.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            json.dump({**content, "pid": os.getpid()}, file, indent=2)
            file.write("\n")
            file.flush()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOwner:
    """The service that wrote a ready or admin file, and lives."""

    address: str
    pid: int


def remove_if_left(file: Path, *, pid: int | None = None) -> FileOwner | None:
    """Removes a ready or admin file whose service is gone.

    Args:
        file: Need not exist; anything else is left alone.
        pid: Only that of this process.

    Returns:
        The service whose file was left alone because it lives.
    """
    with (
        suppress(OSError, ValueError, KeyError, TypeError, RecursionError),
        file.open("rb") as opened,
    ):
        content = json.loads(opened.read(MAX_BYTES))
        owner = FileOwner(address=str(content["address"]), pid=int(content["pid"]))
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return owner
        if pid in (None, owner.pid):
            file.unlink()
    return None
