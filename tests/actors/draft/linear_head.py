"""A drafter of one matrix that knows nothing but the target's hidden states: the smallest method that needs feedback.

After the final norm a table has the log-probabilities of the next token. The state at the last position but one so tells how likely each last
token was, and one product with the table's own probabilities how likely each token after it is. Of the text it reads the length only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter_spec import DrafterSpec, LoadedDrafter, TargetNeed
from outrider.actors.draft.text.text_drafter import TextDrafter
from outrider.actors.engine.tables.tabular_engine import load_table
from outrider.actors.exchange.feedback_request import FeedbackRequest, Layer


class _Nothing:
    def propose(self, tokens: Sequence[int], depth: int) -> list[tuple[int, list[int]]]:
        return []


class LinearHeadDrafter(TextDrafter):
    """Proposes chains of likely tokens below the last state that it was given."""

    def __init__(self, sessions: DraftSessions, weights_VV: NDArray[np.float64]) -> None:
        super().__init__(sessions, new_proposer=_Nothing, priors=[0.5], max_ahead=16)
        self._weights_VV = weights_VV
        self._latest: dict[int, tuple[int, NDArray[np.float32]]] = {}

    def take_features(
        self, session: DraftSession, start: int, features_TLD: NDArray[np.float32]
    ) -> None:
        """See `FeatureReader`."""
        self._latest[session.row] = start + len(features_TLD), features_TLD[-1, 0]
        self._is_fresh_S[session.row] = True

    def attach(self, session: DraftSession) -> None:
        """Forgets the states of whoever had the row before."""
        self._latest.pop(session.row, None)
        super().attach(session)

    def _propose(self, session: DraftSession) -> None:
        end, state_D = self._latest.get(session.row, (0, None))
        if state_D is None or end != session.length - 1:
            return
        law_V, chain = np.exp(state_D.astype(np.float64)), list[int]()
        for _ in range(min(4, session.final_length - session.length)):
            law_V = law_V @ self._weights_VV
            chain.append(int(law_V.argmax()))
        self._graft(session.row, 1, chain)


def spec_of(table: Path, layers: tuple[Layer, ...] = ("norm",), width: int = 0) -> DrafterSpec:
    """The method's description, for the target that has this table."""

    def build(settings: DraftSettings) -> LoadedDrafter:
        sessions = DraftSessions(settings.num_slots, 16)
        weights_VV = np.exp(load_table(table).log_probs.astype(np.float64))
        return LoadedDrafter(
            sessions=sessions,
            drafter=LinearHeadDrafter(sessions, weights_VV),
            feedback=FeedbackRequest(layers=layers, width=width),
        )

    return DrafterSpec(
        name="linear_head",
        build=build,
        summary="one matrix on the target's last hidden state",
        needs=frozenset({TargetNeed.TOKENS, TargetNeed.HIDDEN_STATES}),
    )
