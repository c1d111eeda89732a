"""Drafting with a speculator: the trees of the autoregressive drafter, below the newest hidden state that the target has told.

Nothing is proposed before the first hidden state has come, nor where it lies further back than the net goes. A verdict's own state comes a moment after it
and is waited for: what was drafted without would be drafted again. If a whole round passes without it, the net goes on from its own states until another
comes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.model.model_pass import ModelPass
from outrider.actors.draft.on_states.state_drafter import StateDrafter
from outrider.actors.draft.on_states.state_engine import StateEngine
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.forest import Bools, Int64s


class SpeculatorDrafter(StateDrafter):
    """See the module. A `FeatureReader`."""

    def __init__(
        self,
        sessions: DraftSessions,
        heads: StateEngine,
        **growth: Any,
    ) -> None:
        """
        Args:
            sessions: With room for `num_nodes_of` nodes a tree.
            heads: Runs the net.
            growth: As in `StateDrafter`.
        """
        super().__init__(sessions, heads, **growth)
        self._heads = heads
        self._missed_S = np.zeros(len(sessions.sessions), np.int64)
        """Verdicts in a row whose state had not come by the next one."""

    @property
    def num_computed(self) -> int:
        """See `StateDrafter`."""
        return self._heads.num_computed

    def attach(self, session: DraftSession) -> None:
        """See `Drafter`."""
        super().attach(session)
        self._missed_S[session.row] = 0

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`."""
        self._missed_S[rows_E] = np.where(self._lacks(rows_E), self._missed_S[rows_E] + 1, 0)
        return super().follow(rows_E, tokens_ET, counts_E)

    def take_features(
        self, session: DraftSession, start: int, features_TLD: NDArray[np.float32]
    ) -> None:
        """See `FeatureReader`: the newest one counts."""
        newest = min(start + len(features_TLD), session.length - 1) - 1
        row = session.row
        slot = int(self.models.slots_S[row])
        if newest < start:
            return
        if self._heads.tell(slot, newest, torch.from_numpy(features_TLD[newest - start, 0])):
            self._refresh(session, newest)

    def _refresh(self, session: DraftSession, newest: int) -> None:
        """Rows behind the newest hidden state are run again."""
        if self.models.cached_S[session.row] > newest + 1:
            self._begin_anew(session, newest + 1)

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`: what the target told of tokens that are gone is forgotten."""
        slot = int(self.models.slots_S[session.row])
        self._heads.forget(slot, keep)
        newest = int(self._heads.newest(np.array([slot]))[0])
        super().rewrite(session, min(keep, max(newest, -1) + 1))

    def plan(self, rows_E: Int64s) -> ModelPass | None:
        """See `Drafter`: sessions whose newest hidden state is near enough."""
        able_E = rows_E[(self._deepest(rows_E) >= 1) & ~self._waits(rows_E)]
        return super().plan(able_E) if len(able_E) else None

    def is_complete(self, rows_E: Int64s) -> Bools:
        """See `Drafter`."""
        complete_E = super().is_complete(rows_E)
        complete_E[self._waits(rows_E) & (super()._deepest(rows_E) >= 1)] = False
        return complete_E

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`; rows that were only counted cost nothing."""
        if plan.batch is not None and self._heads.num_computed:
            self.cost.observe(self._heads.num_computed, seconds)

    def _lacks(self, rows_E: Int64s) -> Bools:
        """Whether the target has told less than it could by now."""
        newest_E = self._heads.newest(self.models.slots_S[rows_E])
        lacks_E: Bools = newest_E < self._sessions.lengths_S[rows_E] - 2
        return lacks_E

    def _waits(self, rows_E: Int64s) -> Bools:
        """Whether the state of the last verdict is awaited."""
        waits_E: Bools = self._lacks(rows_E) & (self._missed_S[rows_E] == 0)
        return waits_E

    def _deepest(self, rows_E: Int64s) -> Int64s:
        """As deep as the net goes, counted from the newest hidden state."""
        newest_E = self._heads.newest(self.models.slots_S[rows_E])
        # The root is at position length - 1, and a node of depth d is run at stage length - 1 + d - newest - 1.
        left_E = self._heads.deepest - (self._sessions.lengths_S[rows_E] - 2 - newest_E)
        return np.clip(super()._deepest(rows_E), None, left_E)
