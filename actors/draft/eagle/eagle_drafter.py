"""Drafting with EAGLE-3: the trees of a speculator, whose rows attend to all that the target has told."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.eagle.eagle_engine import EagleEngine
from outrider.actors.draft.eagle.kept_states import Grade
from outrider.actors.draft.heads.speculator_drafter import SpeculatorDrafter
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.trees.forest import Bools, Int64s
from outrider.actors.engine.protocol import Rows


class EagleDrafter(SpeculatorDrafter):
    """See the module. A `FeatureReader`.

    What a kept state is worth is learned while serving, for each grade apart.
    """

    def __init__(self, sessions: DraftSessions, eagle: EagleEngine, **growth: Any) -> None:
        """
        Args:
            sessions: With room for `num_nodes_of` nodes a tree.
            eagle: Runs the net.
            growth: As in `StateDrafter`.
        """
        super().__init__(sessions, eagle, num_levels=len(Grade), **growth)
        self._eagle = eagle

    def warm_up(self) -> None:
        """As `AutoregressiveDrafter`, with rows that are computed."""
        super().warm_up()
        eagle, config = self._eagle, self._eagle.net.config
        slot = eagle.acquire()
        states = np.zeros((1, len(config.taps), config.target_width), np.float32)
        eagle.tell_all(slot, 0, states, np.zeros(1, np.int64))
        eagle.forward([Rows(slot=slot, tokens=[0, 0, 0], parents=[-1, 0, 1])])
        eagle.release(slot)

    def take_features(
        self, session: DraftSession, start: int, features_TLD: NDArray[np.float32]
    ) -> None:
        """See `FeatureReader`: rows to come see all of them, and start from the newest."""
        features_TLD = features_TLD[: max(session.length - 1 - start, 0)]
        if not len(features_TLD):
            return
        slot = int(self.models.slots_S[session.row])
        tokens_T = session.text_T[start + 1 : start + 1 + len(features_TLD)]
        if self._eagle.tell_all(slot, start, features_TLD, tokens_T):
            self._refresh(session, start + len(features_TLD) - 1)

    def _refresh(self, session: DraftSession, newest: int) -> None:
        """A tree that the verdict led into goes on, as long as its rows are no further from a state of the target than the net goes: the target may be
        waiting for more of it, and would wait for all of it again."""
        row = session.row
        origin = int(self._eagle.origins_S[self.models.slots_S[row]])
        is_near = session.length - 2 - origin < self._eagle.deepest
        if not (self.models.is_expanded_S[row] and is_near):
            super()._refresh(session, newest)

    def _waits(self, rows_E: Int64s) -> Bools:
        """Those alone that have no tree."""
        waits_E: Bools = super()._waits(rows_E) & ~self.models.is_expanded_S[rows_E]
        return waits_E

    def _levels(self) -> Int64s | None:
        return self._eagle.levels_W
