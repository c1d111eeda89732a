"""Candidates that may be merged, pruned and chosen at will: those of verifiers that keep a candidate exactly if it is drawn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from outrider.actors.exchange.candidates import Candidates
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.candidate_pools import Base, Grafted, Pools
from outrider.actors.target.candidates.candidate_store import Arrived, Chosen, NodeFate
from outrider.actors.target.candidates.trust import Trust
from outrider.actors.target.schedule.cost import CostModel
from outrider.actors.target.schedule.selection import select
from outrider.actors.target.state import yields
from outrider.actors.target.state.session_table import Bools, Float64s, SessionTable
from outrider.actors.target.state.target_settings import TargetSettings


class GrowingStore:
    """A pool for each session, which any number of drafters feed."""

    survives = True

    def __init__(
        self,
        table: SessionTable,
        pools: Pools,
        trust: Trust,
        cost: CostModel,
        settings: TargetSettings,
    ) -> None:
        """Takes what a choice depends on, all of it the target's own."""
        self._table = table
        self._pools = pools
        self._trust = trust
        self._cost = cost
        self._settings = settings

    def hope(self, speculation: Speculation) -> float:
        """That of a small distilled drafter."""
        del speculation
        return yields.PRIOR_YIELD

    def graft(self, found: Arrived, rows_E: Int64s, number: int) -> Grafted:
        """See `CandidateStore`; so are the others: unites trees with the pools."""
        assert isinstance(found, Candidates), "it is what this store accepts"
        base = Base(
            rows_E=rows_E,
            starts_E=found.lengths_E,
            lengths_E=self._table.lengths_S[rows_E],
            keys_SL=self._table.keys_SL,
        )
        return self._pools.graft(found, base, number, self._trust.of(number))

    def has(self, rows_E: Int64s) -> Bools:
        """Those whose pools are not empty."""
        has_E: Bools = self._pools.sizes_S[rows_E] > 0
        return has_E

    def open(self, rows_E: Int64s) -> Float64s:
        """That of the leaves, while a pass may take more candidates of the session."""
        table = self._table
        open_E = self._pools.open(rows_E, self._deepest(rows_E))
        open_E[self._pools.sizes_S[rows_E] >= table.max_nodes_S[rows_E]] = 0.0
        return open_E

    def is_complete(self, rows_E: Int64s) -> Bools:
        """In lockstep a drafter sends one tree, whole."""
        complete_E: Bools = self._table.answered_S[rows_E]
        return complete_E

    def choose(self, rows_E: Int64s, *, num_rows: int, num_nodes: int, tokens: float) -> Chosen:
        """The candidates that raise the tokens which the pass commits in a second."""
        return select(
            self._pools,
            rows_E,
            deepest_E=self._deepest(rows_E),
            budgets_E=self._table.max_nodes_S[rows_E],
            num_rows=num_rows,
            max_nodes=self._settings.max_batch_nodes,
            cost=self._cost,
        )

    def fates(
        self, row: int, committed: tuple[int, ...], columns: set[int], *, is_over: bool
    ) -> Iterator[NodeFate]:
        """Candidates on the text were foreseen; those off it are never chosen; those below it stay."""
        pools, length = self._pools, int(self._table.lengths_S[row])
        paths: list[tuple[int, ...]] = []
        for column in range(int(pools.sizes_S[row])):
            parent, token = int(pools.parents_SP[row, column]), int(pools.tokens_SP[row, column])
            path = (*(paths[parent] if parent >= 0 else ()), token)
            paths.append(path)
            depth = int(pools.depths_SP[row, column]) - length
            is_foreseen = path == committed[:depth]
            stays = not is_foreseen and not is_over and path[: len(committed)] == committed
            if column not in columns and not stays:
                yield NodeFate(
                    int(pools.drafters_SP[row, column]),
                    depth,
                    float(pools.estimates_SP[row, column]),
                    "foreseen" if is_foreseen else "never_chosen",
                )

    def advance(self, rows_E: Int64s) -> Int64s:
        """Moves the roots of the pools."""
        table = self._table
        return self._pools.reroot(rows_E, table.lengths_S[rows_E], table.keys_SL)

    def clear(self, row: int) -> None:
        """Empties the pool."""
        self._pools.clear(row)

    def _deepest(self, rows_E: Int64s) -> Int64s:
        """Greatest depth of a candidate of each, counted from the start of the text."""
        table = self._table
        reach_E = np.minimum(table.max_depth_S[rows_E], table.remaining_S[rows_E] - 1)
        deepest_E: Int64s = table.lengths_S[rows_E] + np.where(
            table.speculates_S[rows_E], reach_E, 0
        )
        return deepest_E
