"""Processor time of the service's processes, in and outside the models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
"""Unit of the kernel's counters, in seconds; differences over whole runs are long against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """Seconds of processor time by process, and within it by kind of thread."""

    total_s: Mapping[str, float]
    """Whole process, by actor name."""

    worker_s: Mapping[str, float]
    """The thread that runs the model, by actor name; it also walks, plans and commits."""

    @classmethod
    def of(cls, pids: Mapping[str, int]) -> Self:
        """The counters at this moment."""
        total: dict[str, float] = {}
        worker: dict[str, float] = {}
        for name, pid in pids.items():
            total[name] = _seconds(Path(f"/proc/{pid}/stat"))
            worker[name] = sum(
                _seconds(task / "stat")
                for task in Path(f"/proc/{pid}/task").iterdir()
                if (task / "comm").read_text().strip().endswith("worker")
            )
        return cls(total_s=total, worker_s=worker)

    def since(self, before: Self, rounds: int) -> dict[str, float]:
        """Milliseconds for each round outside the worker threads, by actor, and of the workers."""
        result = {}
        for name, total in self.total_s.items():
            worker = self.worker_s[name] - before.worker_s[name]
            outside = total - before.total_s[name] - worker
            result[f"{name} streams"] = 1e3 * outside / rounds
            if worker > 0.0:
                result[f"{name} worker"] = 1e3 * worker / rounds
        return result


def _seconds(stat: Path) -> float:
    fields = stat.read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S
