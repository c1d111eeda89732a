"""The operating system processes of an embedded Ray, found and ended without touching anyone else's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable

import psutil

Processes = frozenset[psutil.Process]
"""Processes, identified by pid and time of creation together: a pid that is used anew is another process."""


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


def end(processes: Collection[psutil.Process], *, patience_s: float) -> Processes:
    """Waits for processes to end; asks those that do not; kills those that still do not.

    Returns:
        Those that had to be killed, for the record.
    """
    _, alive = psutil.wait_procs(list(processes), timeout=patience_s)
    _signal(alive, "terminate")
    _, alive = psutil.wait_procs(alive, timeout=patience_s)
    _signal(alive, "kill")
    psutil.wait_procs(alive, timeout=patience_s)
    return frozenset(alive)


def _signal(processes: Iterable[psutil.Process], how: str) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            getattr(process, how)()


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return []
