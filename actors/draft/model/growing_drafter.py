"""Drafting with a language model: best-first growth below the committed text, without waiting for verdicts.

One pass runs, in one ragged batch over all sessions, the committed tokens that the model has not seen (their last one gives the root's
children) and the most valuable nodes that were not run. Invariants between calls:

- The engine's cached rows of a slot are a prefix of the committed text; its scratch rows are the run nodes of the tree.
- The root is run exactly if every committed token is cached; only then does the tree have nodes.
- The ratings of a session with a length policy (`halting.py`) are those of its root and of its scratch rows, in their order.

Nodes that are worth too little, or that the length policy stops at, are neither run nor sent. They are kept, because
the next verdict raises the value of everything below it: a run node without children would be a dead end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.actors.draft.model.model_drafter import MOST_ROOTS, ModelDrafter
from outrider.actors.draft.model.model_pass import ModelPass, build
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import DraftPass
from outrider.actors.draft.trees.forest import NOT_RUN, ROOT, Bools, Float64s, Int64s, TreeWalk
from outrider.actors.draft.trees.picking import best_first, runnable
from outrider.actors.engine.protocol import WANTS, Engine, Logits, Moves
from outrider.actors.speculation import learning

NOTHING = np.zeros(0, np.int64)
NO_VALUES = NOTHING.astype(np.float64)
ALL = WANTS.index("all")

RUN_SHARE = 0.1
"""A node is run if it is worth this part of a row at the target: a verdict that leads there raises the values below it about so much. Less fills
trees with hopeless siblings, more leaves nothing where a verdict leads."""

LOCKSTEP_AHEAD = 4
"""So many times `max_ahead` nodes are run in lockstep, where the best of them are one tree."""


class AutoregressiveDrafter(ModelDrafter):
    """Grows trees with a draft model."""

    def __init__(
        self, sessions: DraftSessions, engine: Engine, *, max_ahead: int, **shared: Any
    ) -> None:
        """
        Args:
            sessions: With room for `num_nodes_of` nodes a tree.
            engine: The draft model. Used by the calling thread only.
            max_ahead: Nodes of one session that are run, at most.
            shared: As in `ModelDrafter`; the levels are those of `_levels`.
        """
        super().__init__(sessions, engine, **shared)
        self._max_ahead = max_ahead * (LOCKSTEP_AHEAD if self._lockstep else 1)
        self._ran, self._added = 1.0, 0.75
        """What the nodes that were run, and the children that they got, were worth over their bytes and rows at the target. Sums over passes: those
        over what is worth little say nothing of those over what is worth much."""

    def warm_up(self) -> None:
        """Runs the shapes of a prefill and of a draft pass once, so that the first session does not pay for them."""
        self._run_shapes([(count, ALL) for count in (1, self._chunk)])

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`: keeps the rows and nodes that are still below the tokens."""
        forest, models = self._forest, self.models
        walk = forest.walk(rows_E, tokens_ET)
        self._learn(rows_E, walk)
        scratch_ET = forest.scratch_SM[rows_E[:, None], walk.path_ET]
        num_run_E = (scratch_ET >= 0).sum(axis=1)
        stays_E = models.is_expanded_S[rows_E] & (num_run_E == counts_E)
        self._rebase(rows_E, walk, scratch_ET, num_run_E, stays_E)
        models.cached_S[rows_E] += num_run_E
        models.is_expanded_S[rows_E] = stays_E
        self._grower.add_roots(rows_E[stays_E])
        return walk.reached_E

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`: the last token is run again for its logits."""
        models, row = self.models, session.row
        slot = int(models.slots_S[row])
        cached = min(int(models.cached_S[row]), keep, session.length - 1)
        models.cached_S[row] = cached
        models.is_expanded_S[row] = False
        self._forest.clear(np.array([row]))
        self.engine.truncate(slot, cached)
        self._slots.rewrite(slot, cached)

    def is_complete(self, rows_E: Int64s) -> Bools:
        """See `Drafter`."""
        complete_E = self._deepest(rows_E) < 1
        grown = np.flatnonzero(self.models.is_expanded_S[rows_E])
        entries_K, _, _ = self._runnable(rows_E[grown], self._limits(rows_E[grown]))
        complete_E[grown] = True
        complete_E[grown[entries_K]] = False
        return complete_E

    def plan(self, rows_E: Int64s) -> ModelPass | None:
        """See `Drafter`: long texts and growing trees take turns, so that a prompt does not stall the others."""
        models = self.models
        self._choose_cost(rows_E)
        is_expanded_E = models.is_expanded_S[rows_E]
        if np.count_nonzero(is_expanded_E) == len(rows_E):
            return self._pass(NOTHING, rows_E)
        rows_B = rows_E[~is_expanded_E]
        rows_B = rows_B[self._deepest(rows_B) >= 1]
        lags_B = self._sessions.lengths_S[rows_B] - models.cached_S[rows_B]
        is_long_B = lags_B > self.cost.free_rows
        if self._was_prefill or not is_long_B.any():
            plan = self._pass(rows_B[~is_long_B], rows_E[is_expanded_E])
            if plan is not None:
                self._was_prefill = False
                return plan
        if is_long_B.any():
            self._was_prefill = True
            return self._pass(rows_B[is_long_B], NOTHING)
        return None

    def grow(self, plan: DraftPass, logits: Logits | None) -> Int64s:
        """See `Drafter`."""
        assert isinstance(plan, ModelPass), "it is this method's own"
        assert logits is not None, "it has a batch"
        rows_R, nodes_R = plan.rows_K, plan.nodes_K
        done = NOTHING
        if plan.num_reading:
            done = self._read(plan)
            rows_R = np.concatenate((done, rows_R))
            nodes_R = np.concatenate((np.full(len(done), ROOT), nodes_R))
        if not len(rows_R):
            return rows_R
        self._forest.run(plan.rows_K, plan.nodes_K)
        floors_S = self._sessions.floors_S
        ran = float(np.maximum(plan.values_K - floors_S[plan.rows_K], 0.0).sum())
        ran += float((1.0 - floors_S[done]).sum())
        added = self._grower.grow(rows_R, nodes_R, logits, self._levels())
        if ran > 0.0:
            self._ran = learning.PASSES * self._ran + ran
            self._added = learning.PASSES * self._added + added
        if not plan.num_reading:
            return plan.rows_E
        return np.concatenate((done, plan.rows_E[plan.num_reading :]))

    def _levels(self) -> Int64s | None:
        """How sure the model is of each row of logits of the last pass; None: it does not say."""
        return None

    def _read(self, plan: ModelPass) -> Int64s:
        """Takes in that committed tokens were run. Returns the sessions whose root is run now."""
        models = self.models
        reading = plan.rows_E[: plan.num_reading]
        counts = plan.counts_E[: plan.num_reading]
        self.engine.rebase(Moves.read(models.slots_S[reading], counts))
        models.cached_S[reading] += counts
        done = reading[plan.is_read_E]
        models.is_expanded_S[done] = True
        return done

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`."""
        if plan.batch is not None:
            self.cost.observe(plan.batch.num_rows, seconds)

    def _rebase(
        self, rows_E: Int64s, walk: TreeWalk, scratch_ET: Int64s, num_run_E: Int64s, stays_E: Bools
    ) -> None:
        """Commits the rows of the ways, and drops the trees that do not go on below them."""
        forest, models = self._forest, self.models
        ends_E = walk.path_ET[np.arange(len(rows_E)), np.maximum(num_run_E - 1, 0)]
        ends_E = ends_E[stays_E]
        kept = forest.reroot(rows_E[stays_E], ends_E)
        was_expanded_E = models.is_expanded_S[rows_E]
        keeps_EK = np.full((len(rows_E), kept.shape[1]), NOT_RUN)
        keeps_EK[stays_E] = kept
        paths_ET = np.where(
            np.arange(scratch_ET.shape[1]) < num_run_E[:, None], scratch_ET, NOT_RUN
        )
        moves = Moves(
            slots_E=models.slots_S[rows_E[was_expanded_E]],
            paths_EP=paths_ET[was_expanded_E],
            keeps_EK=keeps_EK[was_expanded_E],
        )
        self.engine.rebase(moves)
        if models.halting:
            for row, (_, path, keep) in zip(rows_E[was_expanded_E].tolist(), moves, strict=True):
                if row in models.halting and path:
                    models.halting[row].reroot(path[-1], keep)
        forest.clear(rows_E[was_expanded_E & ~stays_E])

    def _pass(self, reading_B: Int64s, growing_G: Int64s) -> ModelPass | None:
        """A pass in which some sessions read their texts, within the chunk, and others grow."""
        models, forest = self.models, self._forest
        reading = self._reading(reading_B)
        num_read, num_rows = int(np.count_nonzero(reading.is_read_B)), len(reading.tokens_R)
        limits_G = self._limits(growing_G)
        nodes = best_first(
            *self._runnable(growing_G, limits_G),
            rooms_E=limits_G - forest.num_run_S[growing_G],
            count=lambda values: self.cost.best_count(values, value=num_read, rows=num_rows),
        )
        if not num_rows and not len(nodes[0]):
            return None
        return build(
            models,
            forest,
            reading,
            growing_G,
            nodes,
            floors_S=self._sessions.floors_S,
            next_yield=self._added / self._ran,
            cost=self.cost,
        )

    def _runnable(self, rows_E: Int64s, limits_E: Int64s) -> tuple[Int64s, Int64s, Float64s]:
        """Nodes that are worth running, and that the length policies go on from."""
        if not len(rows_E):
            return NOTHING, NOTHING, NO_VALUES
        if self._lockstep:
            floors_E = self._lockstep_floors(rows_E)
        else:
            # Of so many places one that is not worth its part of a token is better left for what grows later.
            floors_E = RUN_SHARE * self._sessions.floors_S[rows_E]
            np.maximum(floors_E, 1.0 / np.maximum(limits_E, 1), out=floors_E)
        entries_K, nodes_K, values_K = runnable(
            self._forest, rows_E, deepest_E=self._deepest(rows_E), floors_E=floors_E
        )
        if not self.models.halting:
            return entries_K, nodes_K, values_K
        goes_on = np.flatnonzero(self.models.goes_on(self._forest, rows_E[entries_K], nodes_K))
        return entries_K[goes_on], nodes_K[goes_on], values_K[goes_on]

    def _lockstep_floors(self, rows_E: Int64s) -> Float64s:
        """Children are worth no more than their parent: below this none would be among those sent."""
        floors_E = np.zeros(len(rows_E))
        for entry, row in enumerate(rows_E.tolist()):
            size = self._sessions.at(row).speculation.max_nodes
            num_nodes = int(self._forest.num_nodes_S[row])
            if num_nodes >= size:
                values_M = self._forest.values_SM[row, 1 : 1 + num_nodes]
                floors_E[entry] = np.partition(values_M, num_nodes - size)[num_nodes - size]
        return floors_E

    def _limits(self, rows_E: Int64s) -> Int64s:
        """Nodes of each session that may be run: further ahead than the target allows, work would be for nobody."""
        limit = min(self._max_ahead, self.engine.max_scratch)
        if self._lockstep:
            return np.full(len(rows_E), limit)
        return self._sessions.allowed(rows_E, limit)

    def _deepest(self, rows_E: Int64s) -> Int64s:
        """Greatest depth of a node that the target can still commit and the context holds."""
        left_E: Int64s = self.models.ends_S[rows_E] - self._sessions.lengths_S[rows_E]
        return np.minimum(left_E, self.models.depths_S[rows_E], out=left_E)


def num_nodes_of(width: int, max_ahead: int, *, lockstep: bool = False) -> int:
    """Nodes of a tree at most: the children of the root and of every node that is run, and the target's own roots."""
    return width * (max_ahead * (LOCKSTEP_AHEAD if lockstep else 1) + 1) + MOST_ROOTS
