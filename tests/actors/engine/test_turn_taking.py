"""Which devices take turns."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from outrider.actors.engine.turn_taking import MPS_FOLDER, compute_device


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
    """The same GPU has one name everywhere, and another has another."""
    first, second = (compute_device(torch.device("cuda", index)) for index in (0, 1))
    assert first.holds_up(compute_device(torch.device("cuda")).name)
    assert not first.holds_up(second.name)


def test_with_mps_they_do_not(tmp_path: Path) -> None:
    """Kernels of all processes run side by side then."""
    (tmp_path / "control").touch()
    device = compute_device(torch.device("cuda"))
    assert not device.holds_up(device.name)


@pytest.mark.parametrize(
    ("cores", "threads", "holds_up"),
    [({3}, 1, True), ({3}, 2, True), ({3, 4}, 1, False), ({3, 4}, 2, True), ({3, 4}, None, True)],
)
def test_threads_that_fill_the_cores_hold_up_whoever_is_there(
    monkeypatch: pytest.MonkeyPatch, cores: set[int], threads: int | None, holds_up: bool
) -> None:
    """However many the other's are; a core that is left is enough."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: cores, raising=False)
    drafter = compute_device(torch.device("cpu"), threads=1)
    target = compute_device(torch.device("cpu"), threads=threads)
    assert target.holds_up(drafter.name) is holds_up


def test_other_cores_are_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that are bound to a core each run side by side."""
    names = []
    for core in (0, 1):
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda process, core=core: {core}, raising=False
        )
        names.append(compute_device(torch.device("cpu"), threads=1))
    assert not names[0].holds_up(names[1].name)


def test_an_emulated_device_takes_nothing_from_anybody() -> None:
    """Its passes are slept."""
    target = compute_device(torch.device("cpu"), is_emulated=True)
    assert not target.holds_up(target.name)
    assert not target.holds_up(compute_device(torch.device("cpu")).name)
