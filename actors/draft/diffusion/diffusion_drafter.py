"""Drafting with a diffusion model: a block is filled behind the text after every verdict, and its best tree is proposed.

A pass reads the tokens that were committed since and fills the block, in one. Until its candidates are there, what the tree held below the verdict goes
on. Further denoising steps are told the likeliest path so far, which under coupled sampling is that of the likely draws; how many there are follows
from what a step takes and what it is expected to bring (`denoising.py`). What it brings is learned from verdicts, by distance from the last known
token, beginning with what the trainer measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.actors.draft.diffusion.block_proposer import BlockProposer
from outrider.actors.draft.diffusion.diffusion_engine import ALL, LAST, NONE, DiffusionEngine
from outrider.actors.draft.diffusion.diffusion_pass import DiffusionPass, pass_of
from outrider.actors.draft.diffusion.learned_rates import LearnedRates
from outrider.actors.draft.model.model_drafter import ModelDrafter
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.forest import Bools, Int64s
from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Logits, Moves
from outrider.actors.engine.timed_engine import TimedEngine


class DiffusionDrafter(ModelDrafter):
    """See the module. A `Drafter`."""

    def __init__(
        self, sessions: DraftSessions, engine: DiffusionEngine, *, max_ahead: int, **shared: Any
    ) -> None:
        """
        Args:
            sessions: With room for `num_nodes_of` nodes a tree.
            engine: Runs the net. Used by the calling thread only.
            max_ahead: Nodes of one session that get children, at most.
            shared: As in `ModelDrafter`.
        """
        self.timed = TimedEngine(engine)
        config = engine.net.config
        self._block = config.block
        slots = PrefixSlots(self.timed, is_shared=False)
        super().__init__(sessions, self.timed, slots=slots, num_levels=self._block, **shared)
        self._learned = LearnedRates(config)
        self._blocks = BlockProposer(
            sessions,
            self.models,
            self._grower,
            self._learned,
            max_ahead=max_ahead,
            lockstep=self._lockstep,
        )
        self._is_stale_S = np.zeros(len(sessions.sessions), np.bool_)
        """The text grew since the block was begun."""

    def warm_up(self) -> None:
        """Runs the shapes of both kinds of steps once, so that the first session does not pay for them."""
        self._run_shapes([(1, LAST), (1, ALL)])

    def attach(self, session: DraftSession) -> None:
        """See `ModelDrafter`: trees are no deeper than a block."""
        super().attach(session)
        row = session.row
        self.models.depths_S[row] = min(int(self.models.depths_S[row]), self._block)
        self._is_stale_S[row] = True

    def detach(self, session: DraftSession) -> None:
        """See `Drafter`."""
        super().detach(session)
        self._blocks.drop(session.row)

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`."""
        forest = self._forest
        walk = forest.walk(rows_E, tokens_ET)
        self._learn(rows_E, walk)
        self._learned.learn(forest, rows_E, walk, self.models.scorings_S[rows_E])
        stays_E = walk.reached_E == counts_E
        ends_E = walk.path_ET[np.arange(len(rows_E)), counts_E - 1]
        forest.reroot(rows_E[stays_E], ends_E[stays_E])
        forest.clear(rows_E[~stays_E])
        self._grower.add_roots(rows_E[stays_E])
        self._is_stale_S[rows_E] = True
        for row in rows_E.tolist():
            self._blocks.drop(row)
        return walk.reached_E

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`: the text is read again, as the rows before the window are gone."""
        row = session.row
        slot = int(self.models.slots_S[row])
        self._forest.clear(np.array([row]))
        self.timed.truncate(slot, 0)
        self._slots.rewrite(slot, 0)
        self.models.cached_S[row] = 0
        self._is_stale_S[row] = True
        self._blocks.drop(row)

    def is_complete(self, rows_E: Int64s) -> Bools:
        """See `Drafter`."""
        goes_on_E = self._is_stale_S[rows_E] | self._has_steps(rows_E)
        complete_E: Bools = ~goes_on_E | (self._blocks.deepest(rows_E) < 1)
        return complete_E

    def plan(self, rows_E: Int64s) -> DiffusionPass | None:
        """See `Drafter`: long texts and blocks take turns, so that a prompt does not stall the others."""
        self._choose_cost(rows_E)
        rows_E = rows_E[self._blocks.deepest(rows_E) >= 1]
        is_stale_E = self._is_stale_S[rows_E]
        steps = rows_E[~is_stale_E & self._has_steps(rows_E)]
        stale = rows_E[is_stale_E]
        lags = self._sessions.lengths_S[stale] - self.models.cached_S[stale]
        is_long = lags > max(self.cost.free_rows, self._block)
        short, long = stale[~is_long], stale[is_long]
        if len(long) and (self._was_prefill or not len(short) + len(steps)):
            self._was_prefill = False
            return self._pass(long, steps[:0])
        self._was_prefill = bool(len(long))
        return self._pass(short, steps) if len(short) + len(steps) else None

    def grow(self, plan: DraftPass, logits: Logits | None) -> Int64s:
        """See `Drafter`."""
        assert isinstance(plan, DiffusionPass), "it is this method's own"
        assert logits is not None, "it has a batch"
        is_told_E = plan.wanted_E == ALL
        for row in plan.rows_E[is_told_E].tolist():
            slot = int(self.models.slots_S[row])
            self.timed.truncate(slot, int(self.models.cached_S[row]))
        rows_B, counts_B = plan.rows_E[~is_told_E], plan.counts_E[~is_told_E]
        self.timed.rebase(Moves.read(self.models.slots_S[rows_B], counts_B))
        self.models.cached_S[rows_B] += counts_B
        self._is_stale_S[rows_B] = plan.wanted_E[~is_told_E] == NONE
        grown: Int64s = plan.rows_E[plan.fills_E]
        if len(grown):
            step_s = self.cost.predict(self._block - 1)
            self._blocks.take(plan, logits.values_RV, np.array(logits.offsets), step_s=step_s)
        return grown

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`."""
        assert isinstance(plan, DiffusionPass), "it is this method's own"
        self.cost.observe(plan.num_rows, seconds)

    def _pass(self, reading: Int64s, steps: Int64s) -> DiffusionPass:
        """A pass in which some sessions read their texts, within the chunk, and others take another step."""
        return pass_of(
            self.models,
            self._reading(reading),
            steps,
            [self._blocks.told(row) for row in steps.tolist()],
            block=self._block,
            gain=self._blocks.gain,
            cost=self.cost,
        )

    def _has_steps(self, rows_E: Int64s) -> Bools:
        """Whether the block of each is to be denoised further."""
        return np.array([self._blocks.goes_on(row) for row in rows_E.tolist()], np.bool_)
