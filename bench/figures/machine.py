"""Names the machine, so that a figure can be read."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import threading
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

WORK_MIB = 32
"""What is hashed to time a core; about twenty milliseconds."""

TURNS = 5
"""How often, alone and two at once by turns; the median counts."""


def describe() -> dict[str, Any]:
    """Processor, cores, memory, commit and versions of what computes. Takes a third of a second."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "two_at_once": round(two_at_once(), 2),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "commit": commit(),
        **{name: version(name) for name in ("torch", "transformers", "ray", "grpcio")},
    }


def two_at_once() -> float:
    """How many times longer the same work takes on two cores at once than on one alone: 1, or up to 2 where both are threads of
    one core. A virtual machine does not tell which, and it may change from minute to minute."""
    work = bytes(WORK_MIB << 20)
    alone, both = [], []
    for _ in range(TURNS):
        alone.append(_busy_s(work, 1))
        both.append(_busy_s(work, 2))
    return sorted(both)[TURNS // 2] / sorted(alone)[TURNS // 2]


def _busy_s(work: bytes, num_threads: int) -> float:
    """Seconds until so many threads have hashed it, which they do without the interpreter's lock."""
    threads = [threading.Thread(target=hashlib.sha256, args=(work,)) for _ in range(num_threads)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def _cpu() -> str:
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return (
        f"{fields.get('model name', platform.machine())} (family {fields.get('cpu family', '?')})"
    )


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"
