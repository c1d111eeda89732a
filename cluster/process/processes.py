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
    members = set()
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == leader:
                members.add(psutil.Process(pid))
    return frozenset(members).union(*(descendants(process) for process in members))


def descendants(process: psutil.Process) -> Processes:
    """Children of a process, theirs, and so on."""
    try:
        return frozenset(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return frozenset()


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
    told: set[psutil.Process] = set()
    for how in ("", "terminate", "kill"):
        told = set()
        deadline = time.monotonic() + patience_s
        while alive := {process for process in find() if runs(process)}:
            if how:
                _tell(alive - told, how)
                told |= alive
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        else:
            return frozenset(told if how == "kill" else ())
    return frozenset(told)


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
