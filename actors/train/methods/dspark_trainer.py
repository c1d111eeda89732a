"""`outrider train dspark`: a drafter of blocks from a target's hidden states; with `--rank 0` DFlash.

Source: DFlash, arXiv 2602.06036; DSpark, DeepSeek-AI and Peking University 2026. The parts are in `train/features` and `train/block`; they are
imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.block.block_options import BlockTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: BlockTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from dataclasses import asdict

    import torch

    from outrider.actors.train.block.block_training import BlockTraining
    from outrider.actors.train.demo.train_demo import choose_device
    from outrider.actors.train.features.frozen_target import load_target
    from outrider.actors.train.heads.head_evaluation import table

    if options.threads:
        torch.set_num_threads(options.threads)
    target = load_target(options.target, choose_device(options.device))
    num_blocks = int(target.model.config.get_text_config().num_hidden_layers)
    reports = BlockTraining(options, target, num_blocks).run()
    return TrainResult(
        report={
            "folder": str(options.out / "dspark"),
            "acceptance": {
                how: {name: asdict(one) for name, one in by.items()} for how, by in reports.items()
            },
        },
        lines=(*table(reports).splitlines(), f"written to {options.out / 'dspark'}"),
    )


SPECS = (
    TrainerSpec(
        name="dspark",
        run=run,
        options=BlockTrainingOptions,
        summary="a drafter of blocks from a target's hidden states; `--rank 0`: DFlash",
        source="arXiv 2602.06036 (DFlash); DeepSeek-AI 2026 (DSpark)",
        needs=frozenset({TrainerNeed.TEXT, TrainerNeed.TARGET}),
    ),
)
