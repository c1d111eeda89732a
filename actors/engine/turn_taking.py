"""On which devices a drafter stands still while the target's pass runs, and how two processes know that they have the same one."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY"
"""Environment variable: where NVIDIA's Multi-Process Service listens, if not in `DEFAULT_MPS_FOLDER`."""

DEFAULT_MPS_FOLDER = "/tmp/nvidia-mps"

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Linux: another one for each start of a machine, the same in all its containers."""


@dataclass(frozen=True, slots=True)
class ComputeDevice:
    """What a process computes on."""

    name: str
    """The same in all processes that have the same device; empty: its passes wait for nobody's."""
    places: int = 1
    """Passes that run on it side by side: one, or its cores."""
    taken: int = 1
    """Of these, by a pass of this process."""

    def holds_up(self, other: str) -> bool:
        """Whether others on the device of this name stand still while a pass of this process runs: it leaves no place to them."""
        return bool(self.name) and self.name == other and self.taken >= self.places


def compute_device(
    device: torch.device, *, threads: int | None = None, is_emulated: bool = False
) -> ComputeDevice:
    """What a model computes on.

    A GPU runs kernels of one process at a time, unless the Multi-Process Service hands in those of all. Of cores that a target's threads fill, a drafter gets a
    tenth meanwhile: the niceness of its threads is 15, the target's 5.

    Args:
        device: Where it computes.
        threads: Of its arithmetic on a CPU; None: as many as there are cores.
        is_emulated: Passes are slept, so they take nothing from anybody.
    """
    if is_emulated:
        return ComputeDevice("")
    if device.type == "cpu":
        cores = _cores()
        return ComputeDevice(
            f"{_host()} cores {','.join(map(str, cores))}", len(cores), threads or len(cores)
        )
    if device.type != "cuda" or _has_mps():
        return ComputeDevice("")
    import torch  # Drafters without a model need none.

    return ComputeDevice(str(torch.cuda.get_device_properties(device).uuid))


def _has_mps() -> bool:
    return (Path(os.environ.get(MPS_FOLDER) or DEFAULT_MPS_FOLDER) / "control").exists()


def _cores() -> list[int]:
    """Those that this process may use. A quota of processor time is no such bound: within it passes do run side by side."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _host() -> str:
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else platform.node()
