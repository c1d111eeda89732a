"""`outrider train mlp_speculator`: heads that draft from a target's hidden states.

Source: Wertheimer et al. 2024, arXiv 2404.19124. The parts are in `train/features` and `train/heads`; they are imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.heads.speculator_options import SpeculatorOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: SpeculatorOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from outrider.actors.train.features.state_training import trained
    from outrider.actors.train.heads.speculator_training import SpeculatorTraining

    return trained(options, SpeculatorTraining)


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
