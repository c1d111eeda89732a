"""`outrider train diffusion`: a drafter of blocks by masked diffusion, from the text alone.

Source: Christopher et al. 2024, arXiv 2408.05636. The parts are in `train/features`, `train/block` and `train/diffusion`; they are imported when it
runs.
"""

from __future__ import annotations

from outrider.actors.train.diffusion.diffusion_options import DiffusionTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: DiffusionTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from outrider.actors.train.diffusion.diffusion_training import DiffusionTraining
    from outrider.actors.train.features.state_training import trained

    return trained(options, DiffusionTraining)


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
