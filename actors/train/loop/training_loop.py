"""The training loop: step, save, resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from outrider.actors.train.loop.budget import Clock, StepDecision
from outrider.actors.train.loop.data_parallel import (
    average_gradients,
    from_first,
    is_first,
    mean_loss_of_all,
    start_alike,
)
from outrider.actors.train.loop.optimizer import Optimizer
from outrider.actors.train.loop.pacer import Pacer
from outrider.actors.train.loop.training_checkpoint import Progress, load_progress, save_progress
from outrider.actors.train.training_errors import ResumeError, TrainingFailed

CLIP_NORM = 1.0


@dataclass(frozen=True)
class StepReport:
    """A finished step: `loss` in nats per token, `seconds` since the previous one."""

    step: int
    steps: int
    loss: float
    seconds: float


@dataclass(frozen=True)
class Saving:
    """Where and how often progress is kept.

    `snapshot` gets the model every `snapshot_seconds`, so that an unfinished one can be tried;
    `saved` is told of every save.
    """

    path: Path
    fingerprint: str
    resume: bool
    progress_seconds: float = 60.0
    snapshot_seconds: float = 180.0
    snapshot: Callable[[nn.Module], None] | None = None
    saved: Callable[[], None] = lambda: None


def found_progress(saving: Saving, steps: int) -> Progress | None:
    """What a former run has left for one of so many steps; None: nothing, or it is not asked for.

    Raises:
        ResumeError: It is of another run, or has had more steps: a net cannot be given back what it was before.
    """
    if not saving.resume:
        return None
    saved = load_progress(saving.path, saving.fingerprint)
    if saved is not None and saved.step > steps:
        raise ResumeError(
            f"{saving.path}: saved by a run of {saved.step} steps, this one has {steps}; give as many or more, another output "
            "folder, or train without resume (--afresh)"
        )
    return saved


def train(
    model: nn.Module,
    pacer: Pacer,
    loss_of_step: Callable[[int], torch.Tensor],
    saving: Saving,
    on_step: Callable[[StepReport], None],
    clock: Clock = time.monotonic,
) -> None:
    """Train `model` in place until the pacer's schedule is done, going on from saved progress if any.

    Of several workers (`data_parallel`) each has its part of the loss; the first one keeps progress, and its pacer decides.

    Raises:
        ResumeError: the saved progress is of another run, or of a longer one.
        TrainingFailed: the loss is not finite.
    """
    model.train()
    recipe = pacer.schedule
    optimizer = Optimizer(model, recipe.matrix_rate, recipe.other_rate)
    saved = found_progress(saving, recipe.steps)
    start = 0
    if saved is not None:
        model.load_state_dict(saved.model)
        optimizer.restore(saved.optimizer)
        torch.set_rng_state(saved.random_state)
        start = saved.step
        pacer.resume(start, StepDecision(**saved.decision) if saved.decision else None)
    start_alike(model)
    pacer.follow(from_first(pacer.schedule.steps))

    def save(step: int) -> None:
        if not is_first():
            return
        decision = pacer.decision()
        progress = Progress(
            saving.fingerprint,
            step,
            model.state_dict(),
            optimizer.state(),
            torch.get_rng_state(),
            asdict(decision) if decision else None,
        )
        save_progress(saving.path, progress)
        saving.saved()

    last_save = last_snapshot = last_step = clock()
    step = start
    while step < pacer.schedule.steps:
        loss = loss_of_step(step)
        value = mean_loss_of_all(loss)
        if not math.isfinite(value):
            raise TrainingFailed(
                f"step {step}: loss is {value}; lower the rates and train without resume"
            )
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step(pacer.schedule.rate(step))
        step += 1
        now = clock()
        pacer.after(step, now - last_step)
        pacer.follow(from_first(pacer.schedule.steps))
        on_step(StepReport(step, pacer.schedule.steps, value, now - last_step))
        last_step = now
        if now - last_save >= saving.progress_seconds:
            save(step)
            last_save = now
        if saving.snapshot is not None and now - last_snapshot >= saving.snapshot_seconds:
            saving.snapshot(model)
            last_snapshot = now
    pacer.finish()
    if start < step:
        save(step)
    model.train(False)
