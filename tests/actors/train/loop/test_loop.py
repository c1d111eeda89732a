"""The loop: it learns, and an interrupted run ends where an uninterrupted one does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.loop.output_head import text_loss
from outrider.actors.train.loop.pacer import Pacer
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.loop.training_checkpoint import weights_digest
from outrider.actors.train.loop.training_loop import Saving, StepReport, train
from outrider.actors.train.training_errors import TrainError

SHAPE = ModelShape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=64)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
SCHEDULE = Schedule(steps=16, warmup=2)


class Killed(Exception):
    """Stands for a kill between two steps."""


def fit(path: Path, stop_after: int = 10**9, resume: bool = True) -> tuple[str, list[float]]:
    """Train a fresh model; the data of a step depends on its number only."""
    torch.manual_seed(0)
    model: LlamaForCausalLM = build(SHAPE, SPECIAL)
    losses: list[float] = []

    def loss_of_step(step: int) -> torch.Tensor:
        rows = np.random.default_rng(step).integers(0, 8, (4, 16))
        return text_loss(model, torch.from_numpy(rows))

    def on_step(report: StepReport) -> None:
        losses.append(report.loss)
        if report.step == stop_after:
            raise Killed

    saving = Saving(path, "run", resume=resume, progress_seconds=0.0)
    train(model, Pacer(SCHEDULE, lambda: math.inf), loss_of_step, saving, on_step)
    return weights_digest(model), losses


def test_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    """A kill costs time, not results: the weights are bit-identical."""
    whole, losses = fit(tmp_path / "whole.pt")
    for stop_after in (5, 11):
        with pytest.raises(Killed):
            fit(tmp_path / "cut.pt", stop_after)
    resumed, last_losses = fit(tmp_path / "cut.pt")
    assert whole == resumed
    assert losses[10:] == last_losses


def test_finished_run_is_not_repeated(tmp_path: Path) -> None:
    """Resuming a finished run takes no step and returns the same weights."""
    whole, _ = fit(tmp_path / "x.pt")
    again, losses = fit(tmp_path / "x.pt")
    assert whole == again
    assert losses == []


def test_without_resume_it_starts_afresh(tmp_path: Path) -> None:
    """All steps are done again."""
    fit(tmp_path / "x.pt")
    assert len(fit(tmp_path / "x.pt", resume=False)[1]) == SCHEDULE.steps


def test_loss_falls(tmp_path: Path) -> None:
    """Tokens come from 8 of 64 values; sixteen steps are enough to notice."""
    _, losses = fit(tmp_path / "x.pt")
    assert losses[-1] < losses[0] - 0.5


def test_snapshot_is_given_while_training(tmp_path: Path) -> None:
    """An unfinished model can be tried."""
    torch.manual_seed(0)
    model = build(SHAPE, SPECIAL)
    seen: list[torch.nn.Module] = []
    saving = Saving(tmp_path / "x.pt", "run", True, snapshot_seconds=0.0, snapshot=seen.append)
    rows = torch.arange(32).reshape(2, 16)
    schedule = replace(SCHEDULE, steps=2)
    train(
        model,
        Pacer(schedule, lambda: math.inf),
        lambda step: text_loss(model, rows),
        saving,
        lambda report: None,
    )
    assert seen == [model, model]


def test_diverged_loss_stops_the_run(tmp_path: Path) -> None:
    """Not-a-number is an error at its step, before it is saved."""
    model = build(SHAPE, SPECIAL)
    saving = Saving(tmp_path / "x.pt", "run", True)
    with pytest.raises(TrainError, match="step 0: loss is nan"):
        train(
            model,
            Pacer(SCHEDULE, lambda: math.inf),
            lambda step: torch.tensor(torch.nan),
            saving,
            lambda report: None,
        )
    assert not (tmp_path / "x.pt").exists()
