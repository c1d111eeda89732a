"""Candidates of verifiers that test a frozen tree: each tree whole, for the text that it hangs below, at most once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import structlog

from outrider.actors.frozen.frozen_candidates import FrozenBatch
from outrider.actors.process.seldom_log import SeldomLog
from outrider.actors.speculation.choice.tree_shape import shape_of
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import sizes_of
from outrider.actors.target.candidates.candidate_pools import Grafted
from outrider.actors.target.candidates.candidate_store import (
    NO_COLUMN,
    Arrived,
    Chosen,
    NodeFate,
)
from outrider.actors.target.candidates.frozen_pool import FrozenPool, VerifiableTree, depths_of
from outrider.actors.target.schedule.cost import CostModel
from outrider.actors.target.state.session_table import Bools, Float64s, SessionTable
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.state.target_settings import TargetSettings

_log = structlog.get_logger(__name__)


class FrozenStore:
    """The trees of each session that wait for its text, and those that the running pass tests."""

    survives = False

    def __init__(
        self,
        table: SessionTable,
        sessions: Mapping[int, TargetSession],
        drafters: Sequence[str],
        cost: CostModel,
        settings: TargetSettings,
    ) -> None:
        """Takes what a choice depends on, all of it the target's own."""
        self._table = table
        self._sessions = sessions
        self._drafters = drafters
        self._cost = cost
        self._settings = settings
        self._pools: dict[int, FrozenPool] = {}
        """By row, of sessions that ever had a tree."""
        self.tested: dict[int, VerifiableTree] = {}
        """By row what was chosen last."""
        self._refusals = SeldomLog(_log)

    def hope(self, speculation: Speculation) -> float:
        """All of a tree and a token: there is none but by waiting, so what too small a hope keeps from being waited for is never learned."""
        return 1.0 + shape_of(speculation, speculation.max_depth).depth

    def graft(self, found: Arrived, rows_E: Int64s, number: int) -> Grafted:
        """See `CandidateStore`; so are the others: keeps each tree, unless the text has passed it by, its drafter's is held already, or the verifier cannot take it."""
        assert isinstance(found, FrozenBatch), "it is what this store accepts"
        is_new_E = np.zeros(len(rows_E), np.bool_)
        for entry, (row, tree) in enumerate(zip(rows_E.tolist(), found.trees_E, strict=True)):
            if tree.base_length < self._table.lengths_S[row]:
                continue
            verifier = self._sessions[row].speculation.verifier
            pool = self._pools.setdefault(row, FrozenPool(verifier))
            try:
                is_new_E[entry] = pool.take(number, tree)
            except ValueError as error:
                name = self._drafters[number]
                self._refusals.warning("frozen tree dropped", drafter=name, reason=str(error))
        sizes_E = sizes_of(found.starts_E)
        return Grafted(
            added_E=np.where(is_new_E, sizes_E, 0),
            stale_E=np.where(is_new_E, 0, sizes_E),
            refused_E=np.zeros_like(sizes_E),
        )

    def has(self, rows_E: Int64s) -> Bools:
        """Those with a tree for their text."""
        has_E = np.zeros(len(rows_E), np.bool_)
        for index, row, pool in self._among(rows_E):
            has_E[index] = pool.has(*self._base(row))
        return has_E

    def open(self, rows_E: Int64s) -> Float64s:
        """A tree is verified as it came."""
        return np.where(self.has(rows_E), 0.0, 1.0)

    def is_complete(self, rows_E: Int64s) -> Bools:
        """Each drafter that takes part has sent a tree, or one is all it takes."""
        complete_E = np.zeros(len(rows_E), np.bool_)
        for index, row, pool in self._among(rows_E):
            drafters = frozenset(self._table.joined_SD[row].nonzero()[0].tolist())
            complete_E[index] = pool.is_complete(*self._base(row), drafters)
        return complete_E

    def choose(self, rows_E: Int64s, *, num_rows: int, num_nodes: int, tokens: float) -> Chosen:
        """For each session the tree for its text, if it is worth its time.

        A tree is verified whole or, where there is no room, without its last levels. Nothing here looks at its tokens, nor at
        its size, which may tell of them.
        """
        table, cost, settings = self._table, self._cost, self._settings
        self.tested = {}
        entries: list[int] = []
        for index, row, pool in self._among(rows_E):
            if not table.speculates_S[row]:
                continue
            left = settings.max_batch_nodes - num_nodes
            tree = pool.ready(
                *self._base(row),
                max_nodes=min(int(table.max_nodes_S[row]), left),
                max_depth=min(int(table.max_depth_S[row]), int(table.remaining_S[row]) - 1),
            )
            if tree is None:
                continue
            gain = float(table.yields_S[row]) - 1.0
            is_gain = settings.lockstep or (tokens + gain) * cost.predict(
                num_rows
            ) >= tokens * cost.predict(num_rows + tree.expected_nodes)
            if pool.is_worth(is_gain=is_gain):
                self.tested[row] = tree
                size = tree.frozen.tree.num_nodes
                entries += [index] * size
                num_nodes, num_rows, tokens = num_nodes + size, num_rows + size, tokens + gain
        if not entries:
            return Chosen(tokens=tokens)
        chosen = list(self.tested.values())
        nodes = [node for tree in chosen for node in tree.nodes()]
        tokens_N, parents_N, depths_N, drafters_N = np.array(nodes, np.int64).T
        return Chosen(
            tokens=tokens,
            entries_N=np.array(entries),
            tokens_N=tokens_N,
            parents_N=parents_N,
            depths_N=depths_N,
            columns_N=np.full(len(entries), NO_COLUMN),
            drafters_N=drafters_N,
            estimates_N=np.ones(len(entries)),
            values_N=np.zeros(len(entries)),
        )

    def fates(
        self, row: int, committed: tuple[int, ...], columns: set[int], *, is_over: bool
    ) -> Iterator[NodeFate]:
        """Trees that the text passes by are never chosen."""
        del columns, is_over
        length = int(self._table.lengths_S[row]) + len(committed)
        tested = self.tested.get(row)
        for base, drafter, frozen in self._pools[row].passed(length) if row in self._pools else ():
            if tested is None or base != tested.base:
                for depth in depths_of(frozen.tree):
                    yield NodeFate(drafter, depth, 1.0, "never_chosen")

    def advance(self, rows_E: Int64s) -> Int64s:
        """Drops the trees that the texts have passed by; those of a base that was decided count as verified."""
        stale_E = np.zeros(len(rows_E), np.int64)
        for index, row, pool in self._among(rows_E):
            if (tested := self.tested.pop(row, None)) is not None:
                pool.spend(*tested.base)
            stale_E[index] = pool.advance(int(self._table.lengths_S[row]))
        return stale_E

    def clear(self, row: int) -> None:
        """Forgets the trees of a session."""
        self._pools.pop(row, None)
        self.tested.pop(row, None)

    def _among(self, rows_E: Int64s) -> Iterator[tuple[int, int, FrozenPool]]:
        """Index and row of those sessions that ever had a tree, with their pools."""
        # Asked several times a round, and mostly no session has one.
        for index, row in enumerate(rows_E.tolist() if self._pools else ()):
            if (pool := self._pools.get(row)) is not None:
                yield index, row, pool

    def _base(self, row: int) -> tuple[int, int]:
        """Length and hash of a text."""
        length = int(self._table.lengths_S[row])
        return length, int(self._table.hashes_SL[row, length])
