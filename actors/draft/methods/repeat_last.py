"""Drafting by saying the last token again: the smallest method there is, an example of how one is added (docs/extending.md).

Right in runs of blanks, dots and zeros, seldom elsewhere. Costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter
from outrider.actors.draft.text.proposal import Proposal, chain
from outrider.actors.draft.text.text_drafter import text_drafter

RIGHT = (0.1, 0.8)
"""How often the first repetition, and each further one, is believed to be right before anything is observed."""


class RepeatLast:
    """Proposes one chain: the last token, over and over."""

    def propose(self, text_T: NDArray[np.int64], *, depth: int, rates: Sequence[float]) -> Proposal:
        """See `Proposer`."""
        return chain([int(text_T[-1])] * depth, kinds=(0, 1))


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    return text_drafter(settings, lambda session: RepeatLast(), RIGHT)


SPECS = (
    DrafterSpec(
        name="repeat_last",
        build=build,
        summary="says the last token again: an example, and free where texts hold runs of one token",
    ),
)
