"""Drafting by saying the last token again: the smallest method there is, an example of how one is added (docs/extending.md).

Right in runs of blanks, dots and zeros, seldom elsewhere. Costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter
from outrider.actors.draft.text.text_drafter import text_drafter

RIGHT = 0.1
"""How often the first repetition is believed to be right before anything is observed."""


class RepeatLast:
    """Proposes one chain: the last token, over and over."""

    def propose(self, tokens: Sequence[int], depth: int) -> Iterable[tuple[int, Sequence[int]]]:
        """See `Proposer`."""
        return [(0, [tokens[-1]] * depth)]


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    return text_drafter(settings, RepeatLast, [RIGHT])


SPECS = (
    DrafterSpec(
        name="repeat_last",
        build=build,
        summary="says the last token again: an example, and free where texts hold runs of one token",
    ),
)
