"""The command on a drafter's card, given to the command line, is the training that made it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from outrider.actors.train.choice.trainer_registry import TRAINERS
from outrider.actors.train.features.drafter_card import command_of
from outrider.actors.train.trainer_spec import TrainResult
from outrider.client.cli.commands.train_cli import train_app
from outrider.cluster.start import commands

CHOSEN: dict[str, dict[str, Any]] = {
    "ctc": {"loss": "prefix", "labels": 4, "taps": 2, "rows_per_step": 4},
    "diffusion": {"width": 64, "own_rows": 9, "matrix_rate": 0.00123456789},
    "dspark": {"rank": 0, "objective": "tokens", "window": 64, "target": "/a model/v1.0"},
    "eagle3": {"norm_taps": False, "own_head": True, "text_rows": 77, "decay": 0.75},
    "mlp_speculator": {"tied": False, "scaled": False, "labels": "tokens", "inner": 16},
    "sorted": {"exits": (1, 4), "separate": True, "minutes": 0.5, "threads": 1},
}


def given_by(monkeypatch: pytest.MonkeyPatch, command: str) -> object:
    """The options that the command line makes of a command."""
    seen: list[object] = []

    def train(name: str, given: dict[str, Any]) -> TrainResult:
        seen.append(TRAINERS[name].options(**given))
        return TrainResult(report={})

    monkeypatch.setattr(commands, "train", train)
    words = shlex.split(command)
    assert words[:2] == ["outrider", "train"]
    assert CliRunner().invoke(train_app, words[2:]).exit_code == 0
    return seen[0]


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("is_chosen", [False, True])
def test_it_is_the_same_training(
    monkeypatch: pytest.MonkeyPatch, name: str, is_chosen: bool
) -> None:
    """Whatever was chosen; also where nothing was."""
    chosen = CHOSEN[name] if is_chosen else {}
    options = TRAINERS[name].options(data=Path("DIR"), out=Path("DIR"), seed=3, **chosen)
    assert given_by(monkeypatch, command_of(name, options)) == options
