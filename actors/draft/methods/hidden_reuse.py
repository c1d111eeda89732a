"""EAGLE-3 whose dropped trees seed the next one: as `eagle3` with `reuse`, and other tokens are put into kept states, too.

Source: Chen et al. 2026, arXiv 2602.21224 (Lyanna).
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.draft.methods.eagle3 import build_eagle
from outrider.actors.draft.on_states.borrowed_tables import BorrowedTables
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import (
    DrafterSpec,
    LoadedDrafter,
    TargetNeed,
    full_or_confidence,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseOptions(BorrowedTables):
    """Of the method."""

    inject_from: int = 3
    """Tokens behind the newest state of the target that are computed where no row has read the same; 1 at least. Others are put into kept states."""

    def __post_init__(self) -> None:
        if self.inject_from < 1:
            raise ValueError(f"inject_from is {self.inject_from}; it must be at least 1")


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    options = ReuseOptions(**settings.options)
    return build_eagle(settings, target=options.target, inject_from=options.inject_from)


SPECS = (
    DrafterSpec(
        name="hidden_reuse",
        build=build,
        summary="`eagle3` that takes states of dropped trees instead of computing them: fewer rows a token, and fewer right ones",
        source="Chen et al. 2026, arXiv 2602.21224",
        needs_model=True,
        lengths=full_or_confidence,
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
        options=ReuseOptions,
        read_shape=EagleConfig.from_json,
        also_loads=frozenset({"eagle3"}),
    ),
)
