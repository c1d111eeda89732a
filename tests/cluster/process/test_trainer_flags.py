"""`outrider train` with a trainer of another package: its options are flags, and what cannot be one is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from typer.testing import CliRunner

from outrider.actors.train.choice.trainer_registry import TRAINERS
from outrider.actors.train.trainer_spec import TrainerSpec, TrainResult
from outrider.client.cli.app import app
from outrider.cluster.process.command_failed import FAILED, USAGE
from outrider.cluster.start import commands


class Pace(StrEnum):
    """A choice of a trainer's own."""

    FAST = "fast"
    SLOW = "slow"


@dataclass(frozen=True, kw_only=True)
class PluginOptions:
    """Of a trainer of another package: flags of every kind."""

    out: Path
    """Must be given."""

    layers: tuple[int, ...]
    """Must be given, once or more often."""

    pace: Pace = Pace.FAST
    """A choice."""

    kind: Literal["a", "b"] = "a"
    """One of two words."""

    most: int | None = None
    """May be none."""

    sizes: tuple[int, ...] = field(default_factory=lambda: (1, 2))
    """Has a default that is made."""

    loud: bool = False
    """A switch."""


@dataclass(frozen=True)
class EitherOptions:
    """Of one whose flag would be of two types."""

    word: int | str = 1


def with_trainer(monkeypatch: pytest.MonkeyPatch, options: type[Any], seen: list[Any]) -> None:
    """Has a package offer one more trainer, `plugin`, which notes its options."""

    def run(given: Any) -> TrainResult:
        seen.append(given)
        return TrainResult(report={})

    spec = TrainerSpec(name="plugin", run=run, options=options, summary="nothing")
    monkeypatch.setattr(commands, "trainers", lambda: {**TRAINERS, "plugin": spec})


def test_flags_of_a_trainer_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field gets a value of its own type, and what has no default must be given."""
    seen: list[Any] = []
    with_trainer(monkeypatch, PluginOptions, seen)
    given = ["train", "plugin", "--out", "o", "--layers", "3", "--layers", "4"]
    for more in ([], ["--pace", "slow", "--kind", "b", "--most", "7", "--sizes", "5", "--loud"]):
        result = CliRunner().invoke(app, [*given, *more])
        assert result.exit_code == 0, result.output
    needed: Any = {"out": Path("o"), "layers": (3, 4)}
    assert seen == [
        PluginOptions(**needed),
        PluginOptions(**needed, pace=Pace.SLOW, kind="b", most=7, sizes=(5,), loud=True),
    ]
    assert all(type(one.pace) is Pace and type(one.kind) is str for one in seen)
    assert CliRunner().invoke(app, given[:4]).exit_code == USAGE


def test_options_that_cannot_be_flags_are_the_trainers_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Named in a line, whichever trainer was asked for: a package that is wrong is found before a long run."""
    with_trainer(monkeypatch, EitherOptions, [])
    for name in ("plugin", "dspark"):
        result = CliRunner().invoke(app, ["train", name, "--help"])
        assert result.exit_code == FAILED
        assert "the options of the trainer 'plugin' cannot be flags: " in result.stderr


@pytest.mark.parametrize("flag", ["--target", "--draft"])
def test_a_path_that_is_empty_is_refused(tmp_path: Path, flag: str) -> None:
    """Also where it may be left out, or given more often: it would be the folder at hand, which may be a model."""
    result = CliRunner().invoke(app, ["train", "decision", "--data", str(tmp_path), flag, ""])
    assert result.exit_code == USAGE
    assert "it is empty; give a path" in result.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["dspark", "--data", "d", "--out", "o"], "goes on from here"),
        (["decision", "--data", "d"], "begins again"),
    ],
)
def test_what_becomes_of_an_interrupted_training(
    monkeypatch: pytest.MonkeyPatch, command: list[str], says: str
) -> None:
    """As docs/training.md has it."""

    def interrupted(name: str, given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "train", interrupted)
    result = CliRunner().invoke(app, ["train", *command])
    assert result.exit_code == 130
    assert result.stderr == f"error: interrupted; the same command {says}\n"
