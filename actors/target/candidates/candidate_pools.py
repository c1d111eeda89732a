"""The candidate pools of all sessions: tries of tokens below the committed texts, fed by any number of drafters.

Parallel arrays, a row a session and a column a node; a parent is in an earlier column. Grafting is a set union, so messages may
be lost, repeated or overtaken. Re-rooting keeps what grew below the tokens that were committed. Every operation is a fixed
number of array operations, whatever the number of sessions and nodes; `tests/actors/target/candidates/plain_pool.py` says the same in loops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.exchange.candidates import Candidates
from outrider.actors.speculation.trees.path_keys import (
    Int64s,
    Uint64s,
    add_up,
    jumps_of,
    multiply,
    terms,
)
from outrider.actors.speculation.trees.ragged import first_equals, ranges, rank_within

LEAST_ESTIMATE = 1.0 / 512.0
"""Probability that a candidate has at least, given its parent; half a step of what the wire tells. One worth nothing would make
all that grows below it worth nothing, also once it is committed."""

_ROOT = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grafted:
    """What became of the nodes of each entry."""

    added_E: Int64s
    """New in the pool."""

    stale_E: Int64s
    """Off the committed text."""

    refused_E: Int64s
    """Without room."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Base:
    """Where the trees of a message hang, and where their sessions are. One entry each."""

    rows_E: Int64s
    """Row of the session; none twice."""

    starts_E: Int64s
    """Length of the text that the tree hangs below."""

    lengths_E: Int64s
    """Length of the session's text now; not less."""

    keys_SL: Uint64s
    """Key of each session's text at each length, that of the whole text at its own length."""


class Pools:
    """Candidates of all sessions. Used by one thread at a time."""

    def __init__(self, num_rows: int, capacity: int) -> None:
        """Makes empty pools.

        Args:
            num_rows: Sessions, at most.
            capacity: Nodes of one session, at most.
        """
        shape = (num_rows, capacity)
        self.capacity = capacity
        self.sizes_S = np.zeros(num_rows, np.int64)
        """Nodes of each session."""
        self.tokens_SP = np.zeros(shape, np.int64)
        self.parents_SP = np.full(shape, _ROOT)
        """Column of the parent, -1 for a child of the text."""
        self.depths_SP = np.zeros(shape, np.int64)
        """Tokens from the start of the text to the node, itself included."""
        self.keys_SP = np.zeros(shape, np.uint64)
        self.estimates_SP = np.zeros(shape)
        """Probability of each node, given its parent, as it was stated."""
        self.values_SP = np.zeros(shape)
        """Probability of the path from the text down to each node, as far as drafters are believed."""
        self.drafters_SP = np.zeros(shape, np.int64)
        """Who proposed it first."""

    def clear(self, row: int) -> None:
        """Empties one pool."""
        self.sizes_S[row] = 0

    def held(self, rows_E: Int64s) -> tuple[Int64s, Int64s]:
        """Entry and column of each node of these sessions, by entry and column."""
        sizes_E = self.sizes_S[rows_E]
        return np.arange(len(rows_E)).repeat(sizes_E), ranges(0, sizes_E)

    def open(self, rows_E: Int64s, deepest_E: Int64s) -> NDArray[np.float64]:
        """Probability that each text leaves its tree through a leaf, below which candidates could go on; 1 without a tree.

        Args:
            rows_E: Sessions.
            deepest_E: Depth from which on leaves are ends, counted from the start of the text.
        """
        entries_H, columns_H = self.held(rows_E)
        held = rows_E[entries_H], columns_H
        parents_H = self.parents_SP[held]
        is_leaf_H = self.depths_SP[held] < deepest_E[entries_H]
        # Nodes of an entry lie one behind the other.
        is_inner_H = parents_H >= 0
        is_leaf_H[(parents_H - columns_H + np.arange(len(entries_H)))[is_inner_H]] = False
        values_H = np.where(is_leaf_H, self.values_SP[held], 0.0)
        open_E = np.bincount(entries_H, values_H, minlength=len(rows_E)).astype(np.float64)
        open_E[self.sizes_S[rows_E] == 0] = 1.0
        return open_E

    def graft(self, candidates: Candidates, base: Base, drafter: int, trust: float) -> Grafted:
        """Unites a drafter's trees with the pools.

        Args:
            candidates: The trees.
            base: Where they hang.
            drafter: Who sent them.
            trust: Factor of the stated probabilities, 0 to 1.
        """
        entries_N, starts_E = candidates.entries_N, candidates.starts_E[:-1]
        parents_N = candidates.parents_N
        parents_N = np.where(parents_N < 0, _ROOT, parents_N + starts_E[entries_N])
        jumps = jumps_of(parents_N)
        depths_N = add_up(np.ones(len(parents_N), np.int64), jumps).astype(np.int64)
        depths_N += base.starts_E[entries_N]
        terms_N = terms(candidates.tokens_N, depths_N)
        start_keys_E = base.keys_SL[base.rows_E, base.starts_E]
        keys_N = start_keys_E[entries_N] + add_up(terms_N, jumps).astype(np.uint64)
        chosen_M = np.arange(len(parents_N))
        is_stale_N = np.zeros(len(parents_N), np.bool_)
        if np.any(base.starts_E < base.lengths_E):
            rows_N, lengths_N = base.rows_E[entries_N], base.lengths_E[entries_N]
            is_past_N = depths_N <= lengths_N
            past_N = add_up(np.where(is_past_N, terms_N, np.uint64(0)), jumps).astype(np.uint64)
            past_N += start_keys_E[entries_N]
            is_stale_N = past_N != base.keys_SL[rows_N, np.minimum(depths_N, lengths_N)]
            chosen_M = (~is_past_N & ~is_stale_N).nonzero()[0]
        rows_M, keys_M = base.rows_E[entries_N[chosen_M]], keys_N[chosen_M]
        columns_M, firsts_M = self._columns(rows_M, keys_M)
        is_refused_M = columns_M >= self.capacity
        # Parents that are on the committed text are the root.
        places_N = np.full(len(parents_N) + 1, _ROOT)
        places_N[chosen_M] = np.arange(len(chosen_M))
        upwards_M = places_N[parents_N[chosen_M]]
        parent_columns_M = np.where(upwards_M < 0, _ROOT, columns_M[upwards_M])
        estimates_M = candidates.estimates_N[chosen_M] / 255.0
        believed_M = np.maximum(trust * estimates_M, LEAST_ESTIMATE)
        values_M = self._values(rows_M, columns_M, firsts_M, believed_M, upwards_M)
        write_W = ((firsts_M == np.arange(len(chosen_M))) & ~is_refused_M).nonzero()[0]
        rows_W, columns_W = rows_M[write_W], columns_M[write_W]
        self.tokens_SP[rows_W, columns_W] = candidates.tokens_N[chosen_M[write_W]]
        self.parents_SP[rows_W, columns_W] = parent_columns_M[write_W]
        self.depths_SP[rows_W, columns_W] = depths_N[chosen_M[write_W]]
        self.keys_SP[rows_W, columns_W] = keys_M[write_W]
        self.estimates_SP[rows_W, columns_W] = estimates_M[write_W]
        self.values_SP[rows_W, columns_W] = values_M[write_W]
        self.drafters_SP[rows_W, columns_W] = drafter
        np.maximum.at(self.sizes_S, rows_W, columns_W + 1)
        count = len(base.rows_E)
        return Grafted(
            added_E=np.bincount(entries_N[chosen_M[write_W]], minlength=count),
            stale_E=np.bincount(entries_N[is_stale_N], minlength=count),
            refused_E=np.bincount(entries_N[chosen_M[is_refused_M]], minlength=count),
        )

    def _columns(self, rows_M: Int64s, keys_M: Uint64s) -> tuple[Int64s, Int64s]:
        """Where nodes are or, if they are new, go; beyond the last column if there is no room.

        Args:
            rows_M: Their sessions, those of a session one after another.
            keys_M: Their keys.

        Returns:
            The columns, and for each node which of these stands for it: itself if it is new, the first of its kind if it is
            there twice, -1 if the pool has it.
        """
        begins_M = np.ones(len(rows_M), np.bool_)
        begins_M[1:] = rows_M[1:] != rows_M[:-1]
        rows_E = rows_M[begins_M]
        entries_H, columns_H = self.held(rows_E)
        rows_H = rows_E[entries_H]
        rows_A = np.concatenate((rows_H, rows_M))
        # Rows set apart, because different sessions may have equal texts.
        names_A = rows_A.astype(np.uint64)
        names_A *= np.uint64(0x9E3779B97F4A7C15)
        names_A += np.concatenate((self.keys_SP[rows_H, columns_H], keys_M))
        firsts_M = first_equals(names_A)[len(rows_H) :]
        is_held_M = firsts_M < len(rows_H)
        held, others = is_held_M.nonzero()[0], (~is_held_M).nonzero()[0]
        columns_M = np.empty(len(rows_M), np.int64)
        columns_M[held] = columns_H[firsts_M[held]]
        firsts_M = np.where(is_held_M, _ROOT, firsts_M - len(rows_H))
        new = (firsts_M == np.arange(len(rows_M))).nonzero()[0]
        columns_M[new] = self.sizes_S[rows_M[new]] + rank_within(rows_M[new])
        columns_M[others] = columns_M[firsts_M[others]]
        return columns_M, firsts_M

    def _values(
        self,
        rows_M: Int64s,
        columns_M: Int64s,
        firsts_M: Int64s,
        estimates_M: NDArray[np.float64],
        upwards_M: Int64s,
    ) -> NDArray[np.float64]:
        """Path probabilities: of known nodes those of the pool, of new ones their parents' times their own."""
        is_new_M = firsts_M == np.arange(len(rows_M))
        own_M = np.where(is_new_M, estimates_M, 1.0)
        known = (firsts_M < 0).nonzero()[0]
        own_M[known] = self.values_SP[rows_M[known], columns_M[known]]
        # One that is there twice is what the first is.
        links_M = np.where(is_new_M, upwards_M, firsts_M)
        return multiply(own_M, jumps_of(links_M))

    def add_children(
        self,
        rows_N: Int64s,
        lengths_N: Int64s,
        keys_N: Uint64s,
        tokens_N: Int64s,
        values_N: NDArray[np.float64],
        drafter: int,
    ) -> None:
        """Adds children of the texts that are not there yet.

        Args:
            rows_N: Sessions, those of one one behind the other; no token twice for one.
            lengths_N: Lengths of their texts.
            keys_N: Keys of their texts.
            tokens_N: Token ids.
            values_N: Probability of each.
            drafter: Who proposed them.
        """
        keys_N = keys_N + terms(tokens_N, lengths_N + 1)
        columns_N, firsts_N = self._columns(rows_N, keys_N)
        at = ((firsts_N >= 0) & (columns_N < self.capacity)).nonzero()[0]
        place = rows_N[at], columns_N[at]
        self.tokens_SP[place] = tokens_N[at]
        self.parents_SP[place] = _ROOT
        self.depths_SP[place] = lengths_N[at] + 1
        self.keys_SP[place] = keys_N[at]
        self.estimates_SP[place] = self.values_SP[place] = values_N[at]
        self.drafters_SP[place] = drafter
        np.maximum.at(self.sizes_S, rows_N[at], columns_N[at] + 1)

    def reroot(self, rows_E: Int64s, lengths_E: Int64s, keys_SL: Uint64s) -> Int64s:
        """Moves roots along committed tokens: what is below them stays, the rest is dropped.

        Args:
            rows_E: Sessions.
            lengths_E: Lengths of their texts now.
            keys_SL: As `Base.keys_SL`, now.

        Returns:
            Number of nodes of each session that were dropped because the text went another way.
        """
        entries_H, columns_H = self.held(rows_E)
        if not len(entries_H):
            return np.zeros(len(rows_E), np.int64)
        held = rows_E[entries_H], columns_H
        depths_H, lengths_H = self.depths_SP[held], lengths_E[entries_H]
        texts_H = keys_SL[held[0], np.minimum(depths_H, lengths_H)]
        # Of the nodes beyond the text none has the key of the text, but for the root itself.
        on_path_H = self.keys_SP[held] == texts_H
        is_root_H = on_path_H & (depths_H == lengths_H)
        parents_H, starts_H = self.parents_SP[held], np.arange(len(entries_H)) - columns_H
        links_H = np.where(parents_H < 0, _ROOT, parents_H + starts_H)
        roots_H = is_root_H.astype(np.int64)
        stays = (add_up(roots_H, jumps_of(links_H)) > roots_H).nonzero()[0]
        entries = entries_H[stays]
        rows, columns, places = held[0][stays], columns_H[stays], rank_within(entries)
        renamed = np.full(len(entries_H) + 1, _ROOT)
        renamed[stays] = places
        values_E = np.ones(len(rows_E))
        values_E[entries_H[is_root_H]] = self.values_SP[held][is_root_H]
        # The root itself was not renamed, so its children get -1. Reading comes before writing.
        parents = renamed[links_H[stays]]
        values = self.values_SP[rows, columns] / values_E[entries]
        for array in (
            self.tokens_SP,
            self.depths_SP,
            self.keys_SP,
            self.estimates_SP,
            self.drafters_SP,
        ):
            array[rows, places] = array[rows, columns]
        self.parents_SP[rows, places] = parents
        self.values_SP[rows, places] = values
        sizes_E = np.bincount(entries, minlength=len(rows_E))
        num_on_path_E = np.bincount(entries_H[on_path_H], minlength=len(rows_E))
        dropped_E: Int64s = self.sizes_S[rows_E] - num_on_path_E - sizes_E
        self.sizes_S[rows_E] = sizes_E
        return dropped_E
