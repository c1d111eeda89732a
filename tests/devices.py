"""Devices that tests run on."""

from __future__ import annotations

import pytest
import torch

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    ],
)
"""A GPU, where there is one."""

DEVICES = ["cpu", CUDA]
