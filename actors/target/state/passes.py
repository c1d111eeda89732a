"""One pass as arrays: the rows for the engine, and where each session's candidates are among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.engine.protocol import Batch
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import ranges, rank_within, sizes_of, starts_of
from outrider.actors.target.candidates.candidate_pools import Pools
from outrider.actors.target.candidates.frozen_pool import Ready
from outrider.actors.target.schedule.selection import Selection
from outrider.actors.target.state.session_table import Bools, SessionTable

NO_COLUMN = -1
"""A node of a frozen tree is in no pool."""

NONE, LAST, ALL = range(3)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pass:
    """What is run. Entry e has nodes `starts_E[e]` to `starts_E[e + 1]`; prompts come first."""

    batch: Batch
    """The rows: of each entry committed tokens, then its candidates."""

    rows_E: Int64s
    """Row of the session in the table."""

    chains_E: Int64s
    """Committed tokens that are run, at least one."""

    draws_E: Bools
    """Tokens are drawn: the chain ends with the last committed token."""

    starts_E: Int64s
    """First node of each entry; one number more than there are entries."""

    tokens_N: Int64s
    """Token ids of the candidates."""

    parents_N: Int64s
    """Index of the parent among the entry's candidates, -1 for the text."""

    columns_N: Int64s
    """Column in the pool, `NO_COLUMN` for those of frozen trees."""

    drafters_N: Int64s
    """Who proposed each, by number; of frozen trees and pools alike."""

    estimates_N: NDArray[np.float64]
    """Probability of each, given its parent."""

    frozen: Mapping[int, Ready]
    """By entry the frozen tree, where the session's verifier tests one."""

    began_s: float
    """When it was planned, in seconds of the worker's clock."""

    drafting: bool
    """Drafters are at work."""

    has_prompt: bool
    """It holds tokens of prompts, so its time says nothing of others."""

    @property
    def entries_N(self) -> Int64s:
        """The entry of each candidate."""
        return np.repeat(np.arange(len(self.rows_E)), sizes_of(self.starts_E))

    def draws_coupled_E(self) -> NDArray[np.bool_]:
        """Entries that draw, and have no frozen tree to test."""
        coupled_E = self.draws_E.copy()
        coupled_E[list(self.frozen)] = False
        return coupled_E

    def roots_E(self) -> Int64s:
        """Row of the logits that each entry's first draw is made from; its candidates' rows follow."""
        return np.array(self.batch.offsets[1:]) - 1 - sizes_of(self.starts_E)


def build(
    table: SessionTable,
    pools: Pools,
    *,
    prompts_P: Int64s,
    sizes_P: Int64s,
    rows_D: Int64s,
    selection: Selection | None,
    frozen: Mapping[int, Ready],
    drafter_numbers: Mapping[str, int],
    now: float,
    drafting: bool,
) -> Pass:
    """Puts a pass together.

    Args:
        table: The sessions.
        pools: Their candidates.
        prompts_P: Sessions whose prompts are run, and how many tokens of each.
        sizes_P: See `prompts_P`.
        rows_D: Sessions that decode.
        selection: Candidates of those, by place among them; None: none.
        frozen: Frozen trees of those, by place among them.
        drafter_numbers: By name.
        now: Seconds of the worker's clock.
        drafting: As `Pass.drafting`.
    """
    rows_E = np.concatenate((prompts_P, rows_D))
    first = len(prompts_P)
    pending_E = table.lengths_S[rows_E] - table.cached_S[rows_E]
    chains_E = np.concatenate((sizes_P, pending_E[first:]))
    entries_N, tokens_N, parents_N, columns_N, drafters_N, estimates_N = _nodes(
        pools, rows_D, selection
    )
    if frozen:
        parts = [(entries_N, tokens_N, parents_N, columns_N, drafters_N, estimates_N)]
        parts += [_frozen_nodes(place, ready, drafter_numbers) for place, ready in frozen.items()]
        joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        entries_N, tokens_N, parents_N, columns_N, drafters_N, estimates_N = (
            array[order] for array in joined
        )
    entries_N = entries_N + first
    counts_E = np.bincount(entries_N, minlength=len(rows_E))
    starts_R = starts_of(chains_E + counts_E)
    chain_at = ranges(starts_R[:-1], chains_E)
    node_at = ranges(starts_R[:-1] + chains_E, counts_E)
    tokens_R = np.empty(starts_R[-1], np.int64)
    parents_R = np.empty(starts_R[-1], np.int64)
    tokens_R[chain_at] = table.tokens_SL[
        np.repeat(rows_E, chains_E), ranges(table.cached_S[rows_E], chains_E)
    ]
    parents_R[chain_at] = ranges(np.full(len(rows_E), -1), chains_E)
    tokens_R[node_at] = tokens_N
    parents_R[node_at] = parents_N + chains_E[entries_N]
    draws_E = chains_E == pending_E
    wanted_E = np.where(draws_E, np.where(counts_E > 0, ALL, LAST), NONE)
    return Pass(
        batch=Batch(
            slots_E=rows_E,
            starts_E=starts_R,
            tokens_R=tokens_R,
            parents_R=parents_R,
            wanted_E=wanted_E,
        ),
        rows_E=rows_E,
        chains_E=chains_E,
        draws_E=draws_E,
        starts_E=starts_of(counts_E),
        tokens_N=tokens_N,
        parents_N=parents_N,
        columns_N=columns_N,
        drafters_N=drafters_N,
        estimates_N=estimates_N,
        frozen={first + place: ready for place, ready in frozen.items()},
        began_s=now,
        drafting=drafting,
        has_prompt=bool((chains_E > 1).any()) or not draws_E.all(),
    )


_Nodes = tuple[Int64s, Int64s, Int64s, Int64s, Int64s, NDArray[np.float64]]


def _nodes(pools: Pools, rows_D: Int64s, selection: Selection | None) -> _Nodes:
    """Entry, token, parent, column, drafter and estimate of the chosen candidates of pools."""
    if selection is None or not len(selection.entries_N):
        none = np.zeros(0, np.int64)
        return none, none, none, none, none, np.zeros(0)
    entries_N, columns_N = selection.entries_N, selection.columns_N
    place = rows_D[entries_N], columns_N
    ranks_N = rank_within(entries_N)
    ranks_DP = np.full((len(rows_D), int(columns_N.max()) + 2), -1)
    ranks_DP[entries_N, columns_N] = ranks_N
    # The last column stands for the text, whose rank is -1.
    parents_N = ranks_DP[entries_N, pools.parents_SP[place]]
    return (
        entries_N,
        pools.tokens_SP[place],
        parents_N,
        columns_N,
        pools.drafters_SP[place],
        pools.estimates_SP[place],
    )


def _frozen_nodes(place: int, ready: Ready, numbers: Mapping[str, int]) -> _Nodes:
    tree = ready.frozen.tree
    count = len(tree.tokens_N)
    return (
        np.full(count, place),
        np.array(tree.tokens_N, np.int64),
        np.array(tree.parents_N, np.int64),
        np.full(count, NO_COLUMN),
        np.array([numbers[name] for name in ready.drafters_N], np.int64),
        np.ones(count),
    )


def plain(pass_: Pass, entry: int, *, now: float) -> Pass:
    """One entry of a pass, without its candidates."""
    start, count = int(pass_.batch.starts_E[entry]), int(pass_.chains_E[entry])
    none = np.zeros(0, np.int64)
    one = slice(entry, entry + 1)
    return Pass(
        batch=Batch(
            slots_E=pass_.batch.slots_E[one],
            starts_E=np.array([0, count]),
            tokens_R=pass_.batch.tokens_R[start : start + count],
            parents_R=pass_.batch.parents_R[start : start + count],
            wanted_E=np.where(pass_.draws_E[one], LAST, NONE),
        ),
        rows_E=pass_.rows_E[one],
        chains_E=pass_.chains_E[one],
        draws_E=pass_.draws_E[one],
        starts_E=np.zeros(2, np.int64),
        tokens_N=none,
        parents_N=none,
        columns_N=none,
        drafters_N=none,
        estimates_N=np.zeros(0),
        frozen={},
        began_s=now,
        drafting=pass_.drafting,
        has_prompt=True,
    )
