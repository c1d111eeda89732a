"""How much memory a device has for an engine."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from outrider.actors.engine.kv.sizing import Memory

CGROUP = Path("/sys/fs/cgroup")
"""Where Linux tells the limits of the container that the process runs in."""


def device_memory(device: torch.device, *, share: float = 1.0) -> Memory:
    """What an engine may take.

    On a GPU, what is free now, up to its share of the whole. On a CPU, all that the machine or the container has, whoever uses it
    now: keys and values take memory only where a session has written, so what is free at the start says little.

    Args:
        device: Where the model runs.
        share: Of a GPU, 0 to 1, where several actors have one.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        own = torch.cuda.memory_allocated(device)
        return Memory(total=min(free, int(total * share) - own), name=str(device), is_lazy=False)
    found = re.search(r"MemTotal:\s*(\d+) kB", _read(Path("/proc/meminfo")))
    amounts = [int(found[1]) * 1024] if found else []
    limit = _read(CGROUP / "memory.max").strip()
    if limit.isdigit():
        amounts.append(int(limit))
    return Memory(total=min(amounts, default=None), name="this machine", is_lazy=True)


def _read(file: Path) -> str:
    """Text of a file; empty if there is none."""
    try:
        return file.read_text()
    except OSError:
        return ""
