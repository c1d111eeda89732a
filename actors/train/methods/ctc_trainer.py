"""`outrider train ctc`: a drafter of frames from a target's hidden states, and the same module by cross-entropy.

Source: Wen et al. 2024, arXiv 2412.00061. The parts are in `train/features`, `train/block` and `train/ctc`; they are imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.ctc.ctc_options import CtcTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: CtcTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from outrider.actors.train.ctc.ctc_training import CtcTraining
    from outrider.actors.train.features.state_training import trained

    return trained(options, CtcTraining)


SPECS = (
    TrainerSpec(
        name="ctc",
        run=run,
        options=CtcTrainingOptions,
        summary="a drafter of frames with blanks from a target's hidden states; `--loss cross_entropy`: the same without blank",
        source="Wen et al. 2024, arXiv 2412.00061",
        needs=frozenset({TrainerNeed.TEXT, TrainerNeed.TARGET}),
    ),
)
