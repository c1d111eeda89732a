"""What is written in the end, or on the way, where the disk is full: an error that says so, and what was there stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.actors.train.loop.full_disks import full_disk
from torch import nn

from outrider.actors.draft.on_states.net_folder import save_folder
from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.loop.training_checkpoint import (
    Progress,
    load_progress,
    save_model,
    save_progress,
)
from outrider.actors.train.text.train_tokenizer import train_tokenizer
from outrider.actors.train.training_errors import TrainingFailed

ROOM = 20_000


def progress(size: int) -> Progress:
    """Of a net of so many numbers."""
    return Progress("run", size, {"w": torch.zeros(size)}, [{}], torch.get_rng_state())


def test_progress(tmp_path: Path) -> None:
    """The last one that was whole is gone on from."""
    path = tmp_path / "x.pt"
    save_progress(path, progress(5))
    with full_disk(ROOM), pytest.raises(OSError, match="File too large"):
        save_progress(path, progress(100_000))
    left = load_progress(path, "run")
    assert left is not None
    assert left.step == 5


def test_a_net(tmp_path: Path) -> None:
    """The folder of the last one stays."""
    folder = tmp_path / "net"
    save_folder(folder, nn.Linear(2, 2), {}, "first")
    with full_disk(ROOM), pytest.raises(OSError, match="File too large"):
        save_folder(folder, nn.Linear(300, 300), {}, "second")
    assert (folder / "README.md").read_text() == "first"


def test_a_model(tmp_path: Path) -> None:
    """The same of a checkpoint of transformers."""
    tokenizer = train_tokenizer(["some words"], 262)
    shape = ModelShape(
        hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=262
    )
    model = build(shape, {"bos": 0, "eos": 1, "pad": 2})
    with full_disk(6_000), pytest.raises(TrainingFailed, match=r"model cannot be written: .*large"):
        save_model(tmp_path / "model", model, tokenizer)
    assert not (tmp_path / "model").exists()
