"""`outrider train diffusion`: a drafter of blocks by masked diffusion, from the text alone.

Source: Christopher et al. 2024, arXiv 2408.05636. The parts are in `train/features`, `train/block` and `train/diffusion`; they are imported when it
runs.
"""

from __future__ import annotations

from outrider.actors.train.diffusion.diffusion_options import DiffusionTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: DiffusionTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from dataclasses import asdict

    import torch

    from outrider.actors.train.diffusion.diffusion_training import DiffusionTraining
    from outrider.actors.train.features.frozen_target import target_of
    from outrider.actors.train.loop.depth_report import table

    if options.threads:
        torch.set_num_threads(options.threads)
    target = target_of(options)
    reports = DiffusionTraining(options, target).run()
    return TrainResult(
        report={
            "folder": str(options.out / "diffusion"),
            "acceptance": {
                how: {name: asdict(one) for name, one in by.items()} for how, by in reports.items()
            },
        },
        lines=(*table(reports).splitlines(), f"written to {options.out / 'diffusion'}"),
    )


SPECS = (
    TrainerSpec(
        name="diffusion",
        run=run,
        options=DiffusionTrainingOptions,
        summary="a drafter that fills a block of masks at once, from the text alone",
        source="Christopher et al. 2024, arXiv 2408.05636",
        needs=frozenset({TrainerNeed.TEXT, TrainerNeed.TARGET}),
    ),
)
