"""Drafting with heads on the target's hidden state: no cache, no attention, a fraction of a draft model's time.

Source: Wertheimer et al. 2024, arXiv 2404.19124. The parts are in `draft/heads`; they are imported when it is loaded, not before.
"""

from __future__ import annotations

from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.draft.on_states.borrowed_tables import BorrowedTables
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import (
    DrafterSpec,
    LoadedDrafter,
    TargetNeed,
    full_or_confidence,
)


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    from outrider.actors.draft.heads.head_engine import HeadEngine
    from outrider.actors.draft.heads.speculator_drafter import SpeculatorDrafter
    from outrider.actors.draft.heads.speculator_file import load_speculator
    from outrider.actors.draft.on_states.assembling import assembled
    from outrider.actors.draft.stopping.lengths import Lengths

    target = BorrowedTables(**settings.options).target
    return assembled(
        settings,
        load=lambda folder: load_speculator(folder, target=target),
        engine_of=HeadEngine,
        drafter_of=SpeculatorDrafter,
        lengths=Lengths().offered,
    )


SPECS = (
    DrafterSpec(
        name="mlp_speculator",
        build=build,
        summary="heads on the target's hidden state, trained for one target: a draft takes a fraction of a draft model's time",
        source="Wertheimer et al. 2024, arXiv 2404.19124",
        needs_model=True,
        lengths=full_or_confidence,
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
        options=BorrowedTables,
        read_shape=SpeculatorConfig.from_json,
        model_types=frozenset({"mlp_speculator"}),
    ),
)
