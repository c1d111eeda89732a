"""The operating system processes of an embedded Ray, found and ended without touching anyone else's."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable

import psutil

POLL_S = 0.05
"""How often processes that should end are looked at."""

Processes = frozenset[psutil.Process]
"""Processes, identified by pid and time of creation together: a pid that is used again is another process."""


def owned_by(marker: str) -> Processes:
    """Our descendants whose command line holds `marker` (the folder of one Ray), and all their descendants."""
    ours = descendants(psutil.Process(os.getpid()))
    marked = [process for process in ours if marker in " ".join(_command(process))]
    return frozenset(marked).union(*(descendants(process) for process in marked))


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
            if process.name() == name and _runs(process):
                return True
    return False


def end(processes: Collection[psutil.Process], *, patience_s: float) -> Processes:
    """Waits for processes to end; asks those that do not; kills those that still do not.

    Returns:
        Those that had to be killed, for the record.
    """
    alive = _outliving(processes, patience_s=patience_s)
    _signal(alive, "terminate")
    alive = _outliving(alive, patience_s=patience_s)
    _signal(alive, "kill")
    _outliving(alive, patience_s=patience_s)
    # Reaps those that are our own children; the others are reaped by whoever inherits them.
    psutil.wait_procs(list(processes), timeout=0)
    return alive


def _outliving(processes: Collection[psutil.Process], *, patience_s: float) -> Processes:
    """Those that still run after so long; returns as soon as none does."""
    deadline = time.monotonic() + patience_s
    while True:
        alive = frozenset(process for process in processes if _runs(process))
        if not alive or time.monotonic() > deadline:
            return alive
        time.sleep(POLL_S)


def _runs(process: psutil.Process) -> bool:
    """Whether it runs. A zombie does not: it is dead, and only waits for its parent to notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(processes: Iterable[psutil.Process], how: str) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            getattr(process, how)()


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []
