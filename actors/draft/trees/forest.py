"""The candidate trees of all sessions, as parallel arrays: a row for each session, a column for each node.

Column 0 is the *root*, the last committed token; the nodes of a tree are columns 1 to `num_nodes_S`, in topological order: the
parent of a node has a lower column. A node is *run* when its row is in the engine's scratch space; its logits gave its children at
that moment. Invariants: the parent of a run node is run; that of a sent node is sent; the value of a node is the
product of the estimates on its path; a cell that holds no node has depth 0, parent -1 and was not sent.

Everything works on all given sessions at once, in a number of operations that depends on nothing but the depth of trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.trees.ragged import cells_of, rank_within, starts_of

Bools = NDArray[np.bool_]
Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]

ROOT = 0
"""Column of the root."""

NOT_RUN = -1
"""Scratch row of a node that the engine has not run, and of the root, whose row is cached."""

NEVER = -2
"""Scratch row of a node that is not to be run: the text ends with it."""

NO_TOKEN = -2
"""Fills tokens up to the same number for all sessions; no node has it."""

_PARENT, _DEPTH, _SENT, _TOKEN, _SCRATCH, _FEATURE, _ESTIMATE, _SLOPE, _VALUE = range(9)
_EMPTY = np.array([-1, 0, 0], np.int32)
"""Parent, depth and message number of a cell without a node."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeWalk:
    """The way of committed tokens through the trees of E sessions."""

    path_ET: Int64s
    """Node of each token; 0 from the first one on that has none."""

    reached_E: Int64s
    """Number of tokens that have a node."""

    entries_K: Int64s
    """Entry of each child of a node that was reached: it could have been the next token."""

    steps_K: Int64s
    """Index of that token."""

    nodes_K: Int64s
    """The child."""

    hits_K: Bools
    """Whether it was the token."""


class Forest:
    """Trees of so many sessions."""

    def __init__(self, num_sessions: int, num_nodes: int) -> None:
        """
        Args:
            num_sessions: Rows.
            num_nodes: Nodes of a tree, at most.
        """
        self._block_FSM = np.zeros((9, num_sessions, 1 + num_nodes), np.int32)
        self._block_FP = self._block_FSM.reshape(9, -1)
        ints, floats = self._block_FSM[:6], self._block_FSM[6:].view(np.float32)
        self.parents_SM, self.depths_SM = ints[_PARENT], ints[_DEPTH]
        self.sent_SM = ints[_SENT]
        """Number of the last message that each node was part of; 0: none."""
        self.tokens_SM, self.scratch_SM = ints[_TOKEN], ints[_SCRATCH]
        self.features_SM = ints[_FEATURE]
        """What the estimate rests on: above 0 a rate, and no score; else the score, with a level of confidence that is the number without
        its sign."""
        self.estimates_SM, self.slopes_SM, self.values_SM = floats
        self.parents_SM[:] = -1
        self.tokens_SM[:, ROOT] = -1
        self.scratch_SM[:, ROOT] = NOT_RUN
        self.values_SM[:, ROOT] = 1.0
        self.num_nodes_S = np.zeros(num_sessions, np.int64)
        self.num_run_S = np.zeros(num_sessions, np.int64)
        """Nodes that are run."""
        self.num_columns = 1 + num_nodes

    def width(self, rows_E: Int64s) -> int:
        """Number of columns that the trees of these sessions take."""
        return 1 + max(self.num_nodes_S[rows_E].tolist(), default=0)

    def places(self, rows_K: Int64s, nodes_K: Int64s) -> Int64s:
        """Where nodes lie in the flattened arrays: for `take`, which is much faster than two indices."""
        places_K: Int64s = rows_K * self.num_columns
        places_K += nodes_K
        return places_K

    def clear(self, rows_E: Int64s) -> None:
        """Forgets the trees of some sessions."""
        if not len(rows_E):
            return
        self._block_FSM[: len(_EMPTY), rows_E, : self.width(rows_E)] = _EMPTY[:, None, None]
        self.num_nodes_S[rows_E] = 0
        self.num_run_S[rows_E] = 0

    def add(
        self,
        *,
        rows_K: Int64s,
        parents_K: Int64s,
        tokens_K: Int64s,
        estimates_K: Float32s,
        slopes_K: Float32s | float = 0.0,
        features_K: Int64s | int = 0,
        ends_K: Bools | None = None,
    ) -> Int64s:
        """Adds children.

        Args:
            rows_K: Their sessions, those of a session one after another.
            parents_K: Nodes that they are below; none is added by this call.
            tokens_K: Token ids; none that the parent has a child with.
            estimates_K: Probability of each, given its parent is reached.
            slopes_K: How fast the logarithm of the estimate grows with the sharpness that it was made with.
            features_K: See `features_SM`.
            ends_K: Whether the text ends with it; None: with none.

        Returns:
            Their columns.
        """
        columns_K = rank_within(rows_K) + self.num_nodes_S[rows_K]
        columns_K += 1
        above_K = self.places(rows_K, parents_K)
        record_FK = np.empty((9, len(rows_K)), np.int32)
        floats = record_FK[6:].view(np.float32)
        record_FK[_PARENT] = parents_K
        record_FK[_DEPTH] = self.depths_SM.take(above_K)
        record_FK[_DEPTH] += 1
        record_FK[_SENT] = 0
        record_FK[_TOKEN] = tokens_K
        record_FK[_SCRATCH] = NOT_RUN if ends_K is None else np.where(ends_K, NEVER, NOT_RUN)
        record_FK[_FEATURE] = features_K
        floats[0] = estimates_K
        floats[1] = slopes_K
        np.multiply(self.values_SM.take(above_K), floats[0], out=floats[2])
        self._block_FP[:, self.places(rows_K, columns_K)] = record_FK
        # Of each session the last one counts.
        self.num_nodes_S[rows_K] = columns_K
        return columns_K

    def hang(
        self,
        row: int,
        *,
        tokens: Sequence[int],
        parents: Sequence[int],
        estimates: Sequence[float],
        features: Sequence[int],
        slopes: Sequence[float] | float = 0.0,
    ) -> None:
        """Adds a small tree to that of one session, parents before their children: as `add`, in one step.

        Args:
            row: The session.
            tokens: Token ids; none that the parent has a child with.
            parents: Columns that they are below; those of the new nodes follow the last one there is.
            estimates: Probability of each, given its parent is reached.
            features: See `features_SM`.
            slopes: How fast the logarithm of each estimate grows with the sharpness that it was made with.
        """
        first = 1 + int(self.num_nodes_S[row])
        depths: list[int] = []
        values: list[float] = []
        for parent, estimate in zip(parents, estimates, strict=True):
            is_old = parent < first
            depth = int(self.depths_SM[row, parent]) if is_old else depths[parent - first]
            value = float(self.values_SM[row, parent]) if is_old else values[parent - first]
            depths.append(depth + 1)
            values.append(value * estimate)
        cells = slice(first, first + len(depths))
        self.parents_SM[row, cells] = parents
        self.depths_SM[row, cells] = depths
        self.sent_SM[row, cells] = 0
        self.tokens_SM[row, cells] = tokens
        self.scratch_SM[row, cells] = NOT_RUN
        self.features_SM[row, cells] = features
        self.estimates_SM[row, cells] = estimates
        self.slopes_SM[row, cells] = slopes
        self.values_SM[row, cells] = values
        self.num_nodes_S[row] += len(depths)

    def run(self, rows_K: Int64s, nodes_K: Int64s) -> None:
        """Notes that nodes were run, in this order; those of a session are one after another."""
        numbers_K = rank_within(rows_K) + self.num_run_S[rows_K]
        self.scratch_SM.put(self.places(rows_K, nodes_K), numbers_K)
        # Of each session the last one counts.
        self.num_run_S[rows_K] = numbers_K + 1

    def walk(self, rows_E: Int64s, tokens_ET: Int64s) -> TreeWalk:
        """Follows tokens from the roots down, as far as the trees go.

        Args:
            rows_E: Sessions, none twice.
            tokens_ET: The tokens of each, filled up with `NO_TOKEN`.
        """
        width = self.width(rows_E)
        parents_EM = self.parents_SM[rows_E, :width]
        tokens_EM = self.tokens_SM[rows_E, :width]
        path_ET = np.zeros(tokens_ET.shape, np.int64)
        over_ET = tokens_ET == NO_TOKEN
        # The end of each way so far; -2 is nobody's parent.
        ends_E1 = np.zeros((len(rows_E), 1), parents_EM.dtype)
        none = np.zeros(0, np.int64)
        entries, nodes, hits = [none], [none], [none.astype(np.bool_)]
        for step in range(tokens_ET.shape[1]):
            ends_E1[over_ET[:, step]] = -2
            entries_K, nodes_K = cells_of(parents_EM == ends_E1)
            if not len(nodes_K):
                break
            hits_K = tokens_EM[entries_K, nodes_K] == tokens_ET[entries_K, step]
            entries.append(entries_K)
            nodes.append(nodes_K)
            hits.append(hits_K)
            ended_E, ends_E = entries_K[hits_K], nodes_K[hits_K]
            ends_E1.fill(-2)
            ends_E1[ended_E, 0] = ends_E
            path_ET[ended_E, step] = ends_E
        sizes = [len(part) for part in nodes[1:]]
        return TreeWalk(
            path_ET=path_ET,
            reached_E=(path_ET > 0).sum(axis=1),
            entries_K=np.concatenate(entries),
            steps_K=np.arange(len(sizes)).repeat(sizes),
            nodes_K=np.concatenate(nodes),
            hits_K=np.concatenate(hits),
        )

    def reroot(self, rows_E: Int64s, nodes_E: Int64s) -> Int64s:
        """Makes a node of each session its root and drops what is not below it.

        Args:
            rows_E: Sessions, none twice.
            nodes_E: Nodes that are run, if any node is.

        Returns:
            For each session the scratch rows of the run nodes that stay, ascending, filled up with -1; they are renumbered 0, 1, ... in this
            order. Shape (E, K).
        """
        counts_E = self.num_nodes_S[rows_E] + 1
        starts_E = starts_of(counts_E)[:-1]
        entries_K = np.arange(len(rows_E)).repeat(counts_E)
        starts_K = starts_E[entries_K]
        columns_K = np.arange(len(entries_K))
        columns_K -= starts_K
        places_K = self.places(rows_E[entries_K], columns_K)
        # Index of each parent; a root has none, and stands for itself.
        above_K = np.maximum(self.parents_SM.take(places_K), 0)
        above_K = above_K + starts_K
        roots_E = starts_E + nodes_E
        below_K = np.zeros(len(places_K), np.bool_)
        below_K[roots_E] = True
        num_below = len(rows_E)
        while True:
            below_K |= below_K[above_K]
            grown = int(np.count_nonzero(below_K))
            if grown == num_below:
                break
            num_below = grown
        below_K[roots_E] = False
        kept = below_K.nonzero()[0]
        entries_N = entries_K[kept]
        new_K = np.zeros(len(places_K), np.int64)
        new_K[kept] = columns_N = 1 + rank_within(entries_N)
        new_K[roots_E] = ROOT
        rows_N = rows_E[entries_N]
        record_FN = self._block_FP.take(places_K[kept], axis=1)
        record_FN[_PARENT] = new_K[above_K[kept]]
        from_E = places_K[roots_E]
        record_FN[_DEPTH] -= self.depths_SM.take(from_E)[entries_N]
        floats = record_FN[6:].view(np.float32)
        floats[2] /= self.values_SM.take(from_E)[entries_N]
        kept_rows, num_run_E = _renumber(record_FN[_SCRATCH], entries_N, len(rows_E))
        self.clear(rows_E)
        self._block_FP[:, self.places(rows_N, columns_N)] = record_FN
        self.num_nodes_S[rows_E] = np.bincount(entries_N, minlength=len(rows_E))
        self.num_run_S[rows_E] = num_run_E
        return kept_rows

    def unsend(self, rows_E: Int64s, seen_E: Int64s) -> None:
        """Takes nodes as not sent whose last message is `seen_E` of their session or an earlier one."""
        width = self.width(rows_E)
        sent_EM = self.sent_SM[rows_E, :width]
        self.sent_SM[rows_E, :width] = np.where(sent_EM <= seen_E[:, None], 0, sent_EM)

    def num_sent(self, rows_E: Int64s) -> Int64s:
        """Number of nodes of each session that were sent."""
        counts_E: Int64s = np.count_nonzero(self.sent_SM[rows_E, : self.width(rows_E)], axis=1)
        return counts_E


def _renumber(
    scratch_N: NDArray[np.int32], entries_N: Int64s, num_entries: int
) -> tuple[Int64s, Int64s]:
    """Gives the scratch rows of each entry the numbers from 0 on, in place. Returns the old ones, filled up, and how many."""
    run = (scratch_N >= 0).nonzero()[0]
    run = run[np.lexsort((scratch_N[run], entries_N[run]))]
    counts_E = np.bincount(entries_N[run], minlength=num_entries)
    new_K = rank_within(entries_N[run])
    old_EK = np.full((num_entries, int(counts_E.max(initial=0))), NOT_RUN, np.int64)
    old_EK[entries_N[run], new_K] = scratch_N[run]
    scratch_N[run] = new_K
    return old_EK, counts_E
