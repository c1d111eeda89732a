"""A drafter of another package that asks for hidden states of the shipped target and proposes the last token again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.methods.repeat_last import RepeatLast
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, TargetNeed
from outrider.actors.draft.text.text_drafter import TextDrafter
from outrider.actors.exchange.feedback_request import FeedbackRequest

WIDTH = 160
"""Of the shipped target."""


class ListeningDrafter(TextDrafter):
    """Takes states, and does nothing with them."""

    def take_features(
        self, session: DraftSession, start: int, features_TLD: NDArray[np.float32]
    ) -> None:
        """See `FeatureReader`."""
        assert features_TLD.shape[1:] == (2, WIDTH)


def build(settings: DraftSettings) -> LoadedDrafter:
    """See `DrafterSpec.build`."""
    sessions = DraftSessions(settings.num_slots, settings.max_ahead)
    return LoadedDrafter(
        sessions=sessions,
        drafter=ListeningDrafter(
            sessions, new_proposer=RepeatLast, priors=[0.1], max_ahead=settings.max_ahead
        ),
        feedback=FeedbackRequest(layers=(10, "norm"), width=WIDTH),
    )


SPECS = (
    DrafterSpec(
        name="listening",
        build=build,
        summary="asks for hidden states",
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
    ),
)
