"""`outrider train eagle3`: a decoder layer that drafts from a target's hidden states, and then from its own.

Source: Li et al. 2025, arXiv 2503.01840. The parts are in `train/features` and `train/eagle`; they are imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.eagle.eagle_options import EagleTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: EagleTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from dataclasses import asdict

    import torch

    from outrider.actors.train.eagle.eagle_training import EagleTraining
    from outrider.actors.train.features.frozen_target import target_of
    from outrider.actors.train.loop.depth_report import table

    if options.threads:
        torch.set_num_threads(options.threads)
    target = target_of(options)
    reports = EagleTraining(options, target).run()
    return TrainResult(
        report={
            "folder": str(options.out / "eagle3"),
            "acceptance": {
                how: {name: asdict(one) for name, one in by.items()} for how, by in reports.items()
            },
        },
        lines=(*table(reports).splitlines(), f"written to {options.out / 'eagle3'}"),
    )


SPECS = (
    TrainerSpec(
        name="eagle3",
        run=run,
        options=EagleTrainingOptions,
        summary="a decoder layer that drafts from a target's hidden states, and then from its own",
        source="Li et al. 2025, arXiv 2503.01840",
        needs=frozenset({TrainerNeed.TEXT, TrainerNeed.TARGET}),
    ),
)
