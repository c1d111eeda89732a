"""Training of the demonstration models, from text files to checkpoints, resumable at any moment."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from outrider.actors.train.demo.recipe import STAGES, Recipe
from outrider.actors.train.demo.stages import TrainingRun, parts_of
from outrider.actors.train.loop.budget import DEFAULT_MINUTES, Budget, Clock, check_minutes
from outrider.actors.train.loop.result_folder import check_folder, forget_progress, hold_progress
from outrider.actors.train.loop.training_report import TrainReport
from outrider.actors.train.text.corpus import check
from outrider.actors.train.training_errors import TrainError


def train_demo(
    data_dir: Path,
    out_dir: Path,
    *,
    device: str = "auto",
    resume: bool = True,
    steps_scale: float = 1.0,
    stages: tuple[str, ...] = STAGES,
    minutes: float = DEFAULT_MINUTES,
    recipe: Recipe | None = None,
    clock: Clock = time.monotonic,
) -> TrainReport:
    """Train tokenizer, target and drafts into `out_dir`; a killed run goes on where it was.

    Args:
        data_dir: folder with the training files.
        out_dir: gets `target/`, `draft/`, `draft-small/`, `report.json` and `progress/`.
        device: `auto`, `cpu` or `cuda`.
        resume: go on from `out_dir/progress`; False starts afresh.
        steps_scale: multiplies the number of steps, for a quick look.
        stages: which of `STAGES` to do; the others must have been done before.
        minutes: bound on the whole call and on what was spent on its stages before; the recipe is
            cut to what fits, each stage to one step at the least. 0 is no bound.
        recipe: sizes, sources and schedules, for tests.
        clock: seconds, rising, for tests.

    Raises:
        DataError: a training file is missing or malformed.
        ResumeError: the saved progress belongs to other settings, or another process is at work there.
        TrainError: an argument is out of range, or an earlier stage is missing.
    """
    check_folder(out_dir)
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        raise TrainError(f"stages: unknown {', '.join(unknown)}; choose among {', '.join(STAGES)}")
    if not 0.0 < steps_scale < math.inf:
        raise TrainError(f"steps_scale is {steps_scale}; give a number above 0")
    recipe = recipe or Recipe()
    check_minutes(minutes)
    on = choose_device(device)
    check(data_dir, recipe.sources)
    hold_progress(out_dir)
    if not resume:
        _forget(out_dir, stages, recipe)
    budget = Budget(
        out_dir / "progress" / "budget.json",
        parts_of(stages),
        minutes,
        resume=resume,
        clock=clock,
    )
    run = TrainingRun(data_dir, out_dir, on, resume, steps_scale, recipe, budget)
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        run.announce()
        for stage in stages:
            run.do(stage)
        return run.report()
    finally:
        budget.save()
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _forget(out: Path, stages: tuple[str, ...], recipe: Recipe) -> None:
    """Takes away what these stages have left for a run that goes on."""
    growing = [part.part for part in recipe.growth] if "target" in stages else []
    forget_progress(out, [*stages, *growing])
    if "tokenizer" in stages:
        shutil.rmtree(out / "tokenizer", ignore_errors=True)


def choose_device(name: str) -> torch.device:
    """`auto` is the GPU if there is one.

    Raises:
        TrainError: not a known device, or no GPU here.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise TrainError(f"device is {name!r}; choose auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainError("device is cuda, but PyTorch sees no GPU here; use auto or cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
