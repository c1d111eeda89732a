"""The operating system processes of an embedded Ray, found and ended without touching anyone else's."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection

import psutil

POLL_S = 0.05
"""How often processes that should end are looked at."""

Processes = frozenset[psutil.Process]
"""Processes, identified by pid and time of creation together: a pid that is used again is another process."""


def of_session(leader: int) -> Processes:
    """Every process of a session that runs, and all their descendants.

    A process stays in its session when it loses its parent. One that opens a session of its own is found while its parent runs.

    Args:
        leader: Pid of the process that opened the session. Its parent must not have waited for it: then another's session may
            have the number.
    """
    running = {process.pid: process for process in psutil.process_iter(["ppid"])}
    found = {pid for pid in running if _session(pid) == leader}
    while more := {pid for pid, each in running.items() if each.info["ppid"] in found} - found:
        found |= more
    return frozenset(running[pid] for pid in found)


def any_named(name: str, processes: Collection[psutil.Process]) -> bool:
    """Whether one of these has this name and runs."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.name() == name and runs(process):
                return True
    return False


def end(find: Callable[[], Collection[psutil.Process]], *, patience_s: float) -> Processes:
    """Waits for processes to end; asks those that do not; kills those that still do not.

    Args:
        find: The processes; is called again and again, as they may start others until the last has ended.
        patience_s: Seconds for each of the three steps.

    Returns:
        Those that had to be killed, for the record.
    """
    for how in ("", "terminate", "kill"):
        told: set[psutil.Process] = set()
        deadline = time.monotonic() + patience_s
        while alive := {process for process in find() if runs(process)}:
            if how:
                _tell(alive - told, how)
                told |= alive
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        else:
            break
    return frozenset(told) if how == "kill" else frozenset()


def _session(pid: int) -> int | None:
    """The session of a process; None if it is gone or hidden."""
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _tell(processes: Collection[psutil.Process], how: str) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            getattr(process, how)()


def runs(process: psutil.Process) -> bool:
    """Whether it runs. A zombie does not: it is dead, and only waits for its parent to notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
