"""`outrider train mlp_speculator`: heads that draft from a target's hidden states.

Source: Wertheimer et al. 2024, arXiv 2404.19124. The parts are in `train/features` and `train/heads`; they are imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.heads.speculator_options import SpeculatorOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: SpeculatorOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from dataclasses import asdict

    import torch

    from outrider.actors.train.features.frozen_target import target_of
    from outrider.actors.train.features.training_rows import TrainingRows
    from outrider.actors.train.heads.speculator_training import SpeculatorTraining
    from outrider.actors.train.loop.depth_report import table

    if options.threads:
        torch.set_num_threads(options.threads)
    target = target_of(options)
    rows = TrainingRows(
        target=target,
        data=options.data,
        folder=options.out / "progress",
        layers=("norm",),
        row_length=options.row_length,
        prompt_length=options.prompt_length,
        num_text=options.text_rows,
        num_own=options.own_rows,
        resume=options.resume,
    )
    reports = SpeculatorTraining(options, target, rows).run()
    return TrainResult(
        report={
            "folder": str(options.out / "mlp_speculator"),
            "acceptance": {
                after: {name: asdict(one) for name, one in by.items()}
                for after, by in reports.items()
            },
        },
        lines=(*table(reports).splitlines(), f"written to {options.out / 'mlp_speculator'}"),
    )


SPECS = (
    TrainerSpec(
        name="mlp_speculator",
        run=run,
        options=SpeculatorOptions,
        summary="heads that draft from a target's hidden state and the tokens drafted so far",
        source="Wertheimer et al. 2024, arXiv 2404.19124",
        needs=frozenset({TrainerNeed.TEXT, TrainerNeed.TARGET}),
    ),
)
