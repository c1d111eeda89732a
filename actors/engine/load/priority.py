"""Lower priority for the threads that do arithmetic, so that event loops on the same cores come first.

On Linux a thread has its own niceness, named by its native id, and a new thread inherits that of its creator. OpenMP keeps a
pool of workers for each thread that opens parallel regions, made at its first one. So the calling thread is lowered first, then
one region is run, and the threads that appear with it are lowered too, should they not have inherited.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import torch

TASKS = Path("/proc/self/task")
"""A folder for each thread of the process, named by its native id."""

WARM_UP_NUMBERS = 1 << 20
"""Numbers in the first parallel region: well above 32768, torch's grain, so that every worker gets some."""


def lower_priority(niceness: int) -> tuple[int, ...]:
    """Lowers the priority of the calling thread and of its arithmetic workers.

    Call it before the thread's first arithmetic: workers that it has already keep their priority. Does nothing for 0, and
    on systems other than Linux. Cannot be undone without privileges.

    Args:
        niceness: 0 to 19, absolute; a thread that is nicer already stays so.

    Returns:
        Native ids of the threads that have at least this niceness now, the calling thread's first.
    """
    if niceness == 0 or sys.platform != "linux":
        return ()
    own = threading.get_native_id()
    _lower(own, niceness)
    before = _threads()
    torch.ones(WARM_UP_NUMBERS).sum()
    workers = sorted(_threads() - before)
    return (own, *(worker for worker in workers if _lower(worker, niceness)))


def _threads() -> set[int]:
    return {int(task.name) for task in TASKS.iterdir()}


def _lower(thread: int, niceness: int) -> bool:
    """Lowers one thread; False if it has ended."""
    try:
        os.setpriority(
            os.PRIO_PROCESS, thread, max(niceness, os.getpriority(os.PRIO_PROCESS, thread))
        )
    except ProcessLookupError:
        return False
    return True
