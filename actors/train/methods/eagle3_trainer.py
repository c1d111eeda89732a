"""`outrider train eagle3`: a decoder layer that drafts from a target's hidden states, and then from its own.

Source: Li et al. 2025, arXiv 2503.01840. The parts are in `train/features` and `train/eagle`; they are imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.eagle.eagle_options import EagleTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: EagleTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from outrider.actors.train.eagle.eagle_training import EagleTraining
    from outrider.actors.train.features.state_training import trained

    return trained(options, EagleTraining)


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
