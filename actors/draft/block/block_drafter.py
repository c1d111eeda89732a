"""Drafting with blocks: the trees of the autoregressive drafter, in a lattice instead of in passes.

When all states before the newest token are there, a new block is drafted from it. Until then the tree goes on below the verdict in the block that there
is, the committed token being the Markov head's (drafters that were trained for it draft a new block from the same states, and are told the tokens
since). So a verdict never waits for states, and there is something to send at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.block.block_engine import NUM_LEVELS, BlockEngine
from outrider.actors.draft.model.model_pass import ModelPass
from outrider.actors.draft.on_states.state_drafter import StateDrafter
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.engine.protocol import Batch


class BlockDrafter(StateDrafter):
    """See the module. A `FeatureReader`."""

    def __init__(
        self,
        sessions: DraftSessions,
        blocks: BlockEngine,
        **growth: Any,
    ) -> None:
        """
        Args:
            sessions: With room for `num_nodes_of` nodes a tree.
            blocks: Runs the net.
            growth: As in `StateDrafter`.
        """
        super().__init__(sessions, blocks, num_levels=NUM_LEVELS, **growth)
        self._blocks = blocks

    def warm_up(self) -> None:
        """As `AutoregressiveDrafter`, with a block."""
        super().warm_up()
        config = self._blocks.net.config
        slot = self._blocks.acquire()
        states = np.zeros((1, len(config.taps), config.state_width), np.float32)
        self._blocks.tell(slot, 0, states)
        self._blocks.forward(
            Batch(
                slots_E=np.array([slot]),
                starts_E=np.array([0, 2]),
                tokens_R=np.zeros(2, np.int64),
                parents_R=np.array([-1, 0]),
                wanted_E=np.array([1]),
            )
        )
        self._blocks.release(slot)

    def take_features(
        self, session: DraftSession, start: int, features_TLD: NDArray[np.float32]
    ) -> None:
        """See `FeatureReader`."""
        row = session.row
        slot = int(self.models.slots_S[row])
        if self._blocks.tell(slot, start, features_TLD):
            self._begin_blocks(np.array([row]))

    def plan(self, rows_E: Int64s) -> ModelPass | None:
        """See `Drafter`; where nothing else is left to do, a block that is told the newest tokens."""
        plan = super().plan(rows_E)
        if plan is None and self._begin_blocks(rows_E):
            plan = super().plan(rows_E)
        return plan

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`: what the target told of tokens that are gone is forgotten."""
        self._blocks.forget(int(self.models.slots_S[session.row]), keep)
        super().rewrite(session, keep)

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`; what a block costs says nothing of nodes."""
        if not self._blocks.num_blocks:
            super().took(plan, seconds)

    def _levels(self) -> Int64s | None:
        """What the confidence head says."""
        return self._blocks.levels_W

    def _deepest(self, rows_E: Int64s) -> Int64s:
        """As deep as the block goes."""
        lengths_E = self._sessions.lengths_S[rows_E]
        ends_E = self._blocks.ends(self.models.slots_S[rows_E], lengths_E)
        # The root is at position length - 1, and the position of a node of depth d that is run is below the block's end.
        return np.clip(super()._deepest(rows_E), None, ends_E - lengths_E + 1)

    def _begin_blocks(self, rows_E: Int64s) -> bool:
        """Drops the trees for which there can be a better block; their last tokens are read again."""
        expanded_E = rows_E[self.models.is_expanded_S[rows_E]]
        lengths_E = self._sessions.lengths_S[expanded_E]
        able_E = self._blocks.can_begin(self.models.slots_S[expanded_E], lengths_E)
        for row in expanded_E[able_E].tolist():
            session = self._sessions.at(row)
            self._begin_anew(session, session.length)
        return bool(able_E.any())
