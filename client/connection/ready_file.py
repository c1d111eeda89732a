"""The file that a service writes when it serves, as scripts read it.

The service keeps it locked while it lives; the kernel frees the lock with its process, so that a file of a service that was
killed can be told from one of a service that runs, on the same machine. A copy of the file is not locked.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 1 << 20
"""As much as is read: a ready file has a few kB, and a wrong path may be a model's weights."""


class BadReadyFile(ValueError):
    """The file was not written by a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyFile:
    """What a ready file says of its service, and whether that lives."""

    address: str
    """HOST:PORT for clients."""

    pid: int
    """The process of the service."""

    is_alive: bool
    """Whether that process runs."""


def read_ready_file(path: Path) -> ReadyFile:
    """Reads a ready file.

    Raises:
        OSError: It cannot be read, for instance because it does not exist.
        BadReadyFile: It is something else.
    """
    with path.open("rb") as file:
        is_alive = _is_locked(file.fileno())
        raw = file.read(MAX_BYTES)
    try:
        content = json.loads(raw)
        address, pid = content["address"], content["pid"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadReadyFile(f"{path} is not the ready file of a service") from None
    if not isinstance(address, str) or not isinstance(pid, int):
        raise BadReadyFile(f"{path} is not the ready file of a service")
    return ReadyFile(address=address, pid=pid, is_alive=is_alive)


def _is_locked(descriptor: int) -> bool:
    """Whether a process holds the file's lock."""
    import fcntl  # where there is none, there is no service either

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
