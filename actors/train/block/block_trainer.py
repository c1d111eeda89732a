"""From the options of a trainer of block drafters to its result."""

from __future__ import annotations

from collections.abc import Callable

import torch

from outrider.actors.train.block.block_training import BlockTraining, Options
from outrider.actors.train.block.row_training import plain
from outrider.actors.train.features.frozen_target import FrozenTarget, target_of
from outrider.actors.train.loop.depth_report import table
from outrider.actors.train.trainer_spec import TrainResult


def trained(
    options: Options,
    training_of: Callable[[Options, FrozenTarget], BlockTraining[Options]],
) -> TrainResult:
    """Runs a trainer and tells what came of it.

    Args:
        options: Of the trainer.
        training_of: Makes the `BlockTraining` of options and target.
    """
    if options.threads:
        torch.set_num_threads(options.threads)
    target = target_of(options)
    training = training_of(options, target)
    reports = training.run()
    return TrainResult(
        report={"folder": str(training.folder), "acceptance": plain(reports)},
        lines=(*table(reports).splitlines(), f"written to {training.folder}"),
    )
