"""What would end a start only after a minute, looked at before anything is started: addresses and the disk.

Only for this machine; what the other nodes of a cluster lack, the actors there tell.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path
from typing import Any

from outrider.cluster.config.host_port import split_host_port
from outrider.cluster.process.private_folder import MAX_PARENT

START_BYTES = 64 * 2**20
"""Free space that the folder of Ray's files needs: a start writes 1 MB, the logs of days of service the rest."""

START_FILES = 1_000
"""Files that it must be possible to make there; a start makes about 60."""

SHARED_MEMORY = "/dev/shm"
"""Where Ray keeps its objects; if that has too little room, in the folder of its files."""


class Unfit(RuntimeError):
    """This machine cannot take the service as it is; says what to change."""


def check_address(listen: str, setting: str) -> None:
    """Finds out whether an address can be listened at, within milliseconds.

    Tested and let go again: who listens does so in a process of its own, and a socket that is held here could keep
    that one out, or would keep nobody out. Who takes the port meanwhile is found when that process starts.

    Args:
        listen: HOST:PORT.
        setting: Where it comes from, for messages.

    Raises:
        Unfit: It cannot; says why.
    """
    host, port = split_host_port(listen)
    what = f"{setting}: cannot listen at {listen}"
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError) as error:
        raise Unfit(f"{what}: the host {host!r} is not known ({error})") from error
    problems = [problem for entry in found if (problem := _problem(entry[0], entry[4])) is not None]
    if any(problem.errno == errno.EADDRINUSE for problem in problems):
        raise Unfit(
            f"{what}: the port is in use; end the program that listens there, or take another port (0 takes a free one)"
        )
    if len(problems) == len(found):  # a name may stand for several addresses, one of them enough
        reason = os.strerror(problems[0].errno or 0)
        if problems[0].errno == errno.EADDRNOTAVAIL:
            reason = "no interface of this machine has this address"
        elif problems[0].errno == errno.EACCES:
            reason = "this user may not listen at this port; take one above 1023"
        raise Unfit(f"{what}: {reason}")


def check_room(parent: Path, *, object_store_bytes: int) -> None:
    """Finds out whether the disk has room for Ray's files.

    Args:
        parent: The folder in which the service makes its own.
        object_store_bytes: Size of Ray's object store.

    Raises:
        Unfit: It has not; says how much is missing.
    """
    needed = START_BYTES
    if _free_bytes(SHARED_MEMORY) < object_store_bytes:
        needed += object_store_bytes
    try:
        state = os.statvfs(parent)
    except OSError as error:
        raise Unfit(f"the temporary folder {parent} cannot be used: {error.strerror}") from error
    free = state.f_bavail * state.f_frsize
    advice = f"free some, or name a folder with more room in TMPDIR, its name at most {MAX_PARENT} characters"
    if free < needed:
        raise Unfit(
            f"the temporary folder {parent} has {free / 2**20:.0f} MiB free, and Ray's files need "
            f"{needed / 2**20:.0f} MiB: {advice}"
        )
    # Some file systems have no such bound, and say 0 of 0.
    if state.f_files and state.f_favail < START_FILES:
        raise Unfit(
            f"the temporary folder {parent} has room for {state.f_favail} files, and Ray needs {START_FILES}: {advice}"
        )


def _problem(family: int, address: tuple[Any, ...]) -> OSError | None:
    """Why nobody can listen at a resolved address; None if one can."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As gRPC does: connections of an earlier service that linger do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def _free_bytes(folder: str) -> int:
    """Bytes that can be written to the file system of a folder; 0 if there is none."""
    with contextlib.suppress(OSError):
        state = os.statvfs(folder)
        return state.f_bavail * state.f_frsize
    return 0
