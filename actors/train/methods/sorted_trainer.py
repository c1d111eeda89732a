"""`outrider train sorted`: one draft model whose first layers are drafts of their own.

Source: S2D, Kavehzadeh et al. 2024, arXiv 2407.01955. The parts are in `train/features` and `train/nested`; they are imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.nested.nested_options import NestedTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: NestedTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from dataclasses import asdict

    import torch

    from outrider.actors.train.features.frozen_target import target_of
    from outrider.actors.train.nested.nested_evaluation import exit_table
    from outrider.actors.train.nested.nested_training import FOLDER, NestedTraining

    if options.threads:
        torch.set_num_threads(options.threads)
    target = target_of(options)
    reports = NestedTraining(options, target).run()
    return TrainResult(
        report={
            "folder": str(options.out / FOLDER),
            "acceptance": {
                text: {way: asdict(one) for way, one in by.items()} for text, by in reports.items()
            },
        },
        lines=(*exit_table(reports).splitlines(), f"written to {options.out / FOLDER}"),
    )


SPECS = (
    TrainerSpec(
        name="sorted",
        run=run,
        options=NestedTrainingOptions,
        summary="one draft model of several sizes: exits after some layers share the head and learn the target's law together",
        source="Kavehzadeh et al. 2024, arXiv 2407.01955",
        needs=frozenset({TrainerNeed.TEXT, TrainerNeed.TARGET}),
    ),
)
