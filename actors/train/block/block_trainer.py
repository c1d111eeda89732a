"""From the options of a trainer of block drafters to its result."""

from __future__ import annotations

from collections.abc import Callable

import torch

from outrider.actors.train.block.block_training import BlockTraining, Options
from outrider.actors.train.block.row_training import plain
from outrider.actors.train.features.frozen_target import FrozenTarget, target_of
from outrider.actors.train.heads.head_evaluation import table
from outrider.actors.train.trainer_spec import TrainResult


def trained(
    options: Options,
    training_of: Callable[[Options, FrozenTarget, int], BlockTraining[Options]],
) -> TrainResult:
    """Runs a trainer and tells what came of it.

    Args:
        options: Of the trainer.
        training_of: Makes the `BlockTraining` of options, target and number of its blocks.
    """
    if options.threads:
        torch.set_num_threads(options.threads)
    target = target_of(options)
    num_blocks = int(target.model.config.get_text_config().num_hidden_layers)
    training = training_of(options, target, num_blocks)
    reports = training.run()
    return TrainResult(
        report={"folder": str(training.folder), "acceptance": plain(reports)},
        lines=(*table(reports).splitlines(), f"written to {training.folder}"),
    )
