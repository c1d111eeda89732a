"""What trainers on a target's states do alike: which progress a part goes on from, and which it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from outrider.actors.train.block.dspark_options import DsparkTrainingOptions
from outrider.actors.train.features.state_fitting import StateFitting
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.training_errors import ResumeError

PARTS = {"on text": 1.0, "on its own writing": 1.0}


class Killed(Exception):
    """Stands for a kill between two steps."""


def fitting(out: Path, *, resume: bool = True) -> StateFitting:
    """Of a call of a trainer without a bound on the time."""
    options = DsparkTrainingOptions(data=Path(), out=out, resume=resume, minutes=0.0)
    return StateFitting(options, PARTS)


def fitted(
    one: StateFitting, steps: int, *, part: str = "on text", file: str = "", killed_at: int = -1
) -> Sequence[float]:
    """Trains a map of three numbers for so many steps; what it has become."""
    torch.manual_seed(0)
    net = nn.Linear(3, 3)

    def loss(step: int) -> torch.Tensor:
        if step == killed_at:
            raise Killed
        squares: torch.Tensor = net(torch.full((3,), float(step))).square().mean()
        return squares

    one.fit(part, net, loss, Schedule(steps=steps, warmup=0), [], "run", file)
    weights: list[float] = net.weight.flatten().tolist()
    return weights


@pytest.mark.parametrize("begun", [2, 6])
def test_a_run_that_began_again_and_was_killed(tmp_path: Path, begun: int) -> None:
    """It goes on as if there had been no other, shorter or longer, before: what that one has learnt is gone, of later parts too."""
    whole = fitted(fitting(tmp_path / "whole"), 4)
    later = fitted(fitting(tmp_path / "later"), 4, part="on its own writing", file="on its own writing after 4")  # fmt: skip
    out = tmp_path / "out"
    fitted(fitting(out), begun)
    fitted(fitting(out), begun, part="on its own writing", file="on its own writing after 4")
    (out / "progress" / "another.pt").write_bytes(b"")
    with pytest.raises(Killed):
        fitted(fitting(out, resume=False), 4, killed_at=2)
    assert [file.name for file in (out / "progress").glob("*.pt")] == ["another.pt"]
    assert fitted(fitting(out), 4) == whole
    assert (
        fitted(fitting(out), 4, part="on its own writing", file="on its own writing after 4")
        == later
    )


def test_fewer_steps_than_there_were_are_refused(tmp_path: Path) -> None:
    """A net cannot be given back what it was before; as many or more are done, and a check beforehand says the same."""
    fitted(fitting(tmp_path), 4)
    with pytest.raises(ResumeError, match="saved by a run of 4 steps, this one has 3"):
        fitted(fitting(tmp_path), 3)
    with pytest.raises(ResumeError, match="saved by a run of 4 steps, this one has 3"):
        fitting(tmp_path).check("on text", Schedule(steps=3), [], "run")
    with pytest.raises(ResumeError, match=r"settings run, this one has other"):
        fitting(tmp_path).check("on text", Schedule(steps=4), [], "other")
    with pytest.raises(
        ResumeError, match=r"settings matrix_rate=0.02, this one has matrix_rate=0.01;"
    ):
        fitting(tmp_path).check("on text", Schedule(steps=4, matrix_rate=0.01), [], "run")
    fitting(tmp_path).check("on text", Schedule(steps=5), [], "run")
    assert fitted(fitting(tmp_path), 5) != fitted(fitting(tmp_path / "fresh"), 4)
    fitting(tmp_path, resume=False).check("on text", Schedule(steps=3), [], "other")
