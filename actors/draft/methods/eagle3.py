"""Drafting with one decoder layer on the target's hidden states, which goes on on states of its own: EAGLE-3.

Source: Li et al. 2025, arXiv 2503.01840; `reuse`: Chen et al. 2026, arXiv 2602.21224. The parts are in `draft/eagle`; they are imported when it is
loaded, not before.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.draft.on_states.borrowed_tables import BorrowedTables
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import (
    DrafterSpec,
    LoadedDrafter,
    TargetNeed,
    full_or_confidence,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleOptions(BorrowedTables):
    """Of the method."""

    reuse: bool = False
    """Take states of a dropped tree whose rows read the same token at the same position, instead of computing again."""


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    options = EagleOptions(**settings.options)
    return build_eagle(settings, target=options.target, inject_from=0 if options.reuse else None)


def build_eagle(settings: DraftSettings, *, target: str, inject_from: int | None) -> LoadedDrafter:
    """The drafter, with or without reuse.

    Args:
        settings: Of the drafter.
        target: See `BorrowedTables`.
        inject_from: The first stage at which other tokens are put into kept states; 0: none. None: nothing is kept.
    """
    from functools import partial

    from outrider.actors.draft.eagle.eagle_drafter import EagleDrafter
    from outrider.actors.draft.eagle.eagle_engine import EagleEngine
    from outrider.actors.draft.eagle.eagle_file import load_eagle
    from outrider.actors.draft.on_states.assembling import assembled
    from outrider.actors.draft.stopping.lengths import Lengths

    return assembled(
        settings,
        load=partial(load_eagle, target=target),
        engine_of=partial(EagleEngine, inject_from=inject_from),
        drafter_of=EagleDrafter,
        lengths=Lengths().offered,
    )


SPECS = (
    DrafterSpec(
        name="eagle3",
        build=build,
        summary="one decoder layer on the target's hidden states, trained for one target; goes on on its own states as deep as asked",
        source="Li et al. 2025, arXiv 2503.01840",
        needs_model=True,
        lengths=full_or_confidence,
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
        options=EagleOptions,
        read_shape=EagleConfig.from_json,
        model_types=frozenset({"eagle3"}),
    ),
)
