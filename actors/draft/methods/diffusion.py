"""Drafting a block of tokens by masked diffusion, from the text alone.

Source: Christopher et al. 2024, arXiv 2408.05636 (SpecDiff). The parts are in `draft/diffusion`; they are imported when it is loaded, not before.
"""

from __future__ import annotations

from outrider.actors.draft.diffusion.diffusion_config import DiffusionConfig
from outrider.actors.draft.on_states.borrowed_tables import BorrowedTables
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    from outrider.actors.draft.diffusion.diffusion_drafter import DiffusionDrafter
    from outrider.actors.draft.diffusion.diffusion_engine import DiffusionEngine
    from outrider.actors.draft.diffusion.diffusion_file import load_diffusion_net
    from outrider.actors.draft.on_states.assembling import assembled

    target = BorrowedTables(**settings.options).target
    return assembled(
        settings,
        load=lambda folder: load_diffusion_net(folder, target=target),
        engine_of=DiffusionEngine,
        drafter_of=DiffusionDrafter,
    )


SPECS = (
    DrafterSpec(
        name="diffusion",
        build=build,
        summary="a block of tokens in one pass from the text alone, trained for one target; longer blocks cost hardly more",
        source="Christopher et al. 2024, arXiv 2408.05636",
        needs_model=True,
        options=BorrowedTables,
        read_shape=DiffusionConfig.from_json,
        model_types=frozenset({"diffusion"}),
    ),
)
