"""`outrider train demo`: the demonstration models, from text files to checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from outrider.actors.train.loop.budget import DEFAULT_MINUTES
from outrider.actors.train.trainer_spec import TrainerSpec, TrainResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Of `outrider train demo`."""

    data: Path
    """Folder of the training texts."""

    out: Path
    """Gets the models."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the arithmetic is done."""

    resume: bool = field(default=True, metadata={"flags": ("--resume/--afresh",)})
    """Go on where a former run stopped."""

    steps_scale: float = 1.0
    """Multiplies the number of steps."""

    minutes: float = DEFAULT_MINUTES
    """Cut the work to what fits into so many minutes on this machine; 0 is no bound. A run that goes on counts the time spent before."""

    stages: tuple[str, ...] = field(default=(), metadata={"flags": ("--stage",)})
    """Only this stage: tokenizer, target, draft or draft-small; the minutes are then for it. Repeatable."""


def run(options: DemoOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from dataclasses import asdict

    from outrider.actors.train.demo.recipe import STAGES
    from outrider.actors.train.demo.train_demo import train_demo

    report = train_demo(
        options.data,
        options.out,
        device=options.device,
        resume=options.resume,
        steps_scale=options.steps_scale,
        minutes=options.minutes,
        stages=options.stages or STAGES,
    )
    return TrainResult(report=asdict(report))


SPECS = (
    TrainerSpec(
        name="demo",
        run=run,
        options=DemoOptions,
        summary="the demonstration models: tokenizer, target and drafters",
    ),
)
