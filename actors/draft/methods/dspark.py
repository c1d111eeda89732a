"""Drafting a block of tokens in one pass from the target's hidden states: DSpark, and with rank 0 DFlash.

Source: DFlash, arXiv 2602.06036; DSpark, DeepSeek-AI and Peking University 2026. The parts are in `draft/block`; they are imported when it is
loaded, not before.
"""

from __future__ import annotations

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.on_states.borrowed_tables import BorrowedTables
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, TargetNeed


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    from outrider.actors.draft.block.block_engine import BlockEngine
    from outrider.actors.draft.block.block_file import load_block_net
    from outrider.actors.draft.block.probed_drafter import ProbedBlockDrafter
    from outrider.actors.draft.on_states.assembling import assembled

    target = BorrowedTables(**settings.options).target
    return assembled(
        settings,
        load=lambda folder: load_block_net(folder, target=target),
        engine_of=BlockEngine,
        drafter_of=ProbedBlockDrafter,
    )


SPECS = (
    DrafterSpec(
        name="dspark",
        build=build,
        summary="a block of tokens in one pass from the target's hidden states, trained for one target; rank 0 is DFlash",
        source="arXiv 2602.06036 (DFlash); DeepSeek-AI 2026 (DSpark)",
        needs_model=True,
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
        options=BorrowedTables,
        read_shape=BlockConfig.from_json,
        model_types=frozenset({"dspark"}),
    ),
)
