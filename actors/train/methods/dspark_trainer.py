"""`outrider train dspark`: a drafter of blocks from a target's hidden states; with `--rank 0` DFlash.

Source: DFlash, arXiv 2602.06036; DSpark, DeepSeek-AI and Peking University 2026. The parts are in `train/features` and `train/block`; they are
imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.block.dspark_options import DsparkTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: DsparkTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from outrider.actors.train.block.dspark_training import DsparkTraining
    from outrider.actors.train.features.state_training import trained

    return trained(options, DsparkTraining)


SPECS = (
    TrainerSpec(
        name="dspark",
        run=run,
        options=DsparkTrainingOptions,
        summary="a drafter of blocks from a target's hidden states; `--rank 0`: DFlash",
        source="arXiv 2602.06036 (DFlash); DeepSeek-AI 2026 (DSpark)",
        needs=frozenset({TrainerNeed.TEXT, TrainerNeed.TARGET}),
    ),
)
