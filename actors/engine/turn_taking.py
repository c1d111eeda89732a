"""Which devices run one process's work at a time, and how two processes know that they have the same one."""

from __future__ import annotations

import os
from pathlib import Path

import torch

MPS_FOLDER = "CUDA_MPS_PIPE_DIRECTORY"
"""Environment variable: where NVIDIA's Multi-Process Service listens, if not in `DEFAULT_MPS_FOLDER`."""

DEFAULT_MPS_FOLDER = "/tmp/nvidia-mps"


def turn_taking_device(device: torch.device) -> str:
    """Identifies a device on which the passes of several processes take turns.

    A GPU runs kernels of one process at a time, unless the Multi-Process Service hands in those of all. Cores of a CPU are shared by
    the operating system in slices far shorter than a pass.

    Args:
        device: Where a model computes.

    Returns:
        The GPU's own identifier; empty for a device whose passes wait for nobody's.
    """
    if device.type != "cuda" or _has_mps():
        return ""
    return str(torch.cuda.get_device_properties(device).uuid)


def _has_mps() -> bool:
    return (Path(os.environ.get(MPS_FOLDER) or DEFAULT_MPS_FOLDER) / "control").exists()
