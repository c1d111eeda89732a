"""Drafting with frames that are collapsed, from the target's hidden states: a block of which each slot may hold a blank.

Source: Wen et al. 2024, arXiv 2412.00061. The parts are in `draft/ctc` and `draft/block`; they are imported when it is loaded, not before.
"""

from __future__ import annotations

from outrider.actors.draft.ctc.ctc_config import CtcConfig
from outrider.actors.draft.on_states.borrowed_tables import BorrowedTables
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, TargetNeed


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    from outrider.actors.draft.block.block_drafter import BlockDrafter
    from outrider.actors.draft.block.block_file import load_block_net
    from outrider.actors.draft.ctc.ctc_engine import CtcEngine
    from outrider.actors.draft.ctc.ctc_net import CtcNet
    from outrider.actors.draft.on_states.assembling import assembled

    target = BorrowedTables(**settings.options).target
    return assembled(
        settings,
        load=lambda folder: load_block_net(
            folder, target=target, config_of=CtcConfig, net_of=CtcNet
        ),
        engine_of=CtcEngine,
        drafter_of=BlockDrafter,
    )


SPECS = (
    DrafterSpec(
        name="ctc",
        build=build,
        summary="as dspark, but the block's slots are frames with blanks, collapsed: tokens are foreseen without fixed places",
        source="Wen et al. 2024, arXiv 2412.00061",
        needs_model=True,
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
        options=BorrowedTables,
        read_shape=CtcConfig.from_json,
        model_types=frozenset({"ctc"}),
    ),
)
