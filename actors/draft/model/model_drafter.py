"""What drafters with a model have alike: the model's slots, what is kept of sessions and learned from their texts, and what passes cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.actors.draft.model.fitting import check_fits, take_slot, within
from outrider.actors.draft.model.growing import Grower
from outrider.actors.draft.model.model_pass import TextReading, reading_of
from outrider.actors.draft.model.model_sessions import ModelSessions
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import LOOKAHEAD
from outrider.actors.draft.stopping.lengths import Lengths
from outrider.actors.draft.trees.calibration import Rates, Sharpness, learn_walk
from outrider.actors.draft.trees.draft_cost import PassCost
from outrider.actors.draft.trees.forest import Int64s, TreeWalk
from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Batch, Engine

MOST_ROOTS = 255
"""Roots that a target proposes, at most (`exchange.verdicts`)."""

ROOT_PRIORS = 0.5 / np.maximum(np.arange(1 + MOST_ROOTS), 1)
"""How often the target's own candidates are drawn, by rank from 1 on, before anything is observed."""


class ModelDrafter:
    """Sessions of a drafter that grows trees with a model."""

    def __init__(
        self,
        sessions: DraftSessions,
        engine: Engine,
        *,
        width: int,
        prefill_chunk: int,
        lockstep: bool = False,
        lengths: Lengths | None = None,
        slots: PrefixSlots | None = None,
        num_levels: int = 1,
    ) -> None:
        """
        Args:
            sessions: With room for `num_nodes_of` nodes a tree.
            engine: The draft model. Used by the calling thread only.
            width: Children of a node, at most.
            prefill_chunk: Committed tokens in one pass, at most.
            lockstep: Grow one tree of the size that the target verifies, for comparison.
            lengths: The length policies on offer; None: those that need no trained model.
            slots: The model's slots; None: nobody else uses the model.
            num_levels: Levels of confidence that the model tells apart.
        """
        self.engine = engine
        self._sessions = sessions
        self._forest = sessions.forest
        self._slots = slots or PrefixSlots(engine)
        self.models = ModelSessions(len(sessions.sessions), engine.spec)
        """What is kept of the sessions beside their trees."""
        self._lengths = lengths or Lengths()
        self._lockstep = lockstep
        self._chunk = min(prefill_chunk, engine.max_scratch)
        self.sharpness = Sharpness(num_levels)
        self._costs = PassCost(), PassCost()
        """Of passes while targets compute, and of those that one of them waits for: they may share a device."""
        self.cost = self._costs[False]
        """Of the pass that was planned last."""
        self._was_prefill = False
        self._rates = Rates(ROOT_PRIORS)
        self._grower = Grower(
            sessions, self.models, engine, width=width, sharpness=self.sharpness, rates=self._rates
        )

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return self.engine.num_slots

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self.engine.num_free

    def _run_shapes(self, shapes: Sequence[tuple[int, int]]) -> None:
        """Runs a pass of each shape for nobody: its rows, and what is wanted of them (`WANTS`)."""
        slot = self.engine.acquire()
        try:
            for count, wanted in shapes:
                batch = Batch(
                    slots_E=np.array([slot]),
                    starts_E=np.array([0, count]),
                    tokens_R=np.zeros(count, np.int64),
                    parents_R=np.full(count, -1),
                    wanted_E=np.array([wanted]),
                )
                self._grower.warm_up(self.engine.forward(batch).values_RV)
                self.engine.truncate(slot, 0)
        finally:
            self.engine.release(slot)

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session; its text is run by later passes.

        Raises:
            NoRoom: Every slot is taken.
            CannotDraft: The text does not fit the draft model's context, or the length policy needs a decision model that is
                not there.
        """
        check_fits(session, self.engine.spec)
        session.sampling = within(session.sampling, self.engine.spec.vocab_size)
        speculation = session.speculation
        depth = speculation.max_depth * (1 if self._lockstep else LOOKAHEAD)
        policy = self._lengths.policy(speculation.policies, longest=depth)
        slot = take_slot(self._slots, session)
        self.models.add(session, slot=slot, depth=depth, policy=policy)
        self.models.cached_S[session.row] = self.engine.cached(slot)

    def detach(self, session: DraftSession) -> None:
        """Frees the session's slot; the rows of its text may serve another one."""
        self._slots.release(int(self.models.slots_S[session.row]), session.tokens)
        self.models.remove(session.row)
        self._grower.forget(session.row)

    def _learn(self, rows_E: Int64s, walk: TreeWalk) -> None:
        """Learns from what was committed, before the trees follow it."""
        learn_walk(
            self._forest,
            rows_E,
            walk,
            rates=self._rates,
            sharpness=self.sharpness,
            scorings_E=self.models.scorings_S[rows_E],
        )

    def _choose_cost(self, rows_E: Int64s) -> None:
        """Takes the cost of a pass for these sessions as `cost`."""
        self.cost = self._costs[bool(self._sessions.is_awaited_S[rows_E].any())]

    def _reading(self, rows_B: Int64s) -> TextReading:
        """What these sessions read of their texts in one pass."""
        vocab_size = self.engine.spec.vocab_size
        return reading_of(
            self._sessions, self.models, rows_B, chunk=self._chunk, vocab_size=vocab_size
        )
