"""`outrider train sorted`: one draft model whose first layers are drafts of their own.

Source: S2D, Kavehzadeh et al. 2024, arXiv 2407.01955. The parts are in `train/features` and `train/nested`; they are imported when it runs.
"""

from __future__ import annotations

from outrider.actors.train.nested.nested_options import NestedTrainingOptions
from outrider.actors.train.trainer_spec import TrainerNeed, TrainerSpec, TrainResult


def run(options: NestedTrainingOptions) -> TrainResult:
    """See `TrainerSpec.run`."""
    from outrider.actors.train.features.state_training import trained
    from outrider.actors.train.nested.nested_training import NestedTraining

    return trained(options, NestedTraining)


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
