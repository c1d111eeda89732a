"""Which devices take turns."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from outrider.actors.engine.turn_taking import MPS_FOLDER, turn_taking_device


@pytest.fixture(autouse=True)
def gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two GPUs, and no Multi-Process Service."""
    monkeypatch.setenv(MPS_FOLDER, str(tmp_path))
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda device: SimpleNamespace(uuid=f"GPU-{torch.device(device).index or 0}"),
    )


def test_processes_on_one_gpu_take_turns() -> None:
    """The same GPU has one name everywhere, another has another, and cores have none."""
    first = turn_taking_device(torch.device("cuda"))
    assert first == turn_taking_device(torch.device("cuda", 0)) != ""
    assert turn_taking_device(torch.device("cuda", 1)) not in ("", first)
    assert turn_taking_device(torch.device("cpu")) == ""


def test_with_mps_they_do_not(tmp_path: Path) -> None:
    """Kernels of all processes run side by side then."""
    (tmp_path / "control").touch()
    assert turn_taking_device(torch.device("cuda")) == ""
