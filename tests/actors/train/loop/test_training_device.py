"""Where trainers on a target's states train."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from tests.devices import CUDA

from outrider.actors.train.choice.trainer_registry import TRAINERS
from outrider.actors.train.trainer_options import TargetTrainerOptions
from outrider.actors.train.training_errors import TrainError

SMALL = {
    "steps": 3,
    "text_steps": 2,
    "own_steps": 2,
    "reuse_steps": 2,
    "num_steps": 2,
    "text_rows": 8,
    "own_rows": 8,
    "row_length": 20,
    "prompt_length": 6,
    "rows_per_step": 2,
    "inner": 16,
    "heads": 2,
    "minutes": 0.0,
}
"""Of those that a trainer has: a training of seconds."""

ON_STATES = [
    name for name, spec in TRAINERS.items() if issubclass(spec.options, TargetTrainerOptions)
]


def small(name: str, data: Path, out: Path, device: str) -> TargetTrainerOptions:
    """Options of a trainer."""
    kind = TRAINERS[name].options
    known = {field.name for field in fields(kind)}
    given = {key: value for key, value in SMALL.items() if key in known}
    options = kind(data=data, out=out, device=device, **given)
    assert isinstance(options, TargetTrainerOptions)
    return options


@pytest.mark.parametrize("name", ON_STATES)
@pytest.mark.parametrize("device", [CUDA])
def test_every_trainer_trains_on_a_device(
    tiny_data: Path, tmp_path: Path, name: str, device: str
) -> None:
    """From files to what is measured, on the shipped target; what was kept on one device serves another."""
    run = TRAINERS[name].run
    result = run(small(name, tiny_data, tmp_path, device))
    folder = Path(result.report["folder"])
    assert (folder / "model.safetensors").is_file()
    assert run(small(name, tiny_data, tmp_path, "cpu")).report.keys() == result.report.keys()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """Before any text is read."""
    text = tmp_path / "text.txt"
    text.write_text("words\n")
    for name in ON_STATES:
        with pytest.raises(TrainError, match="sees no GPU"):
            TRAINERS[name].run(small(name, text, tmp_path, "cuda"))
    assert list(tmp_path.iterdir()) == [text]


def test_workers_that_would_have_no_rows_are_refused(tmp_path: Path) -> None:
    """A worker has a row of every step at the least."""
    for name in ON_STATES:
        kind = TRAINERS[name].options
        for workers in (0, 3):
            with pytest.raises(ValueError, match="the rows of a step"):
                kind(data=tmp_path, out=tmp_path, rows_per_step=2, workers=workers)
