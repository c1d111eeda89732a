"""Which candidates a pass takes: those that raise the tokens it commits in a second.

Each session offers its best nodes, at most as many and as deep as its request allows; of all together the best are taken as long
as one more raises the pace. So trees are deep while the target has nothing else to do and vanish when rows cost much; a pass with
candidates is never expected to be slower, per token, than one without.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import rank_within
from outrider.actors.target.candidates.candidate_pools import Pools
from outrider.actors.target.candidates.candidate_store import Chosen
from outrider.actors.target.schedule.cost import CostModel

Float64s = NDArray[np.float64]


def select(
    pools: Pools,
    rows_E: Int64s,
    *,
    deepest_E: Int64s,
    budgets_E: Int64s,
    num_rows: int,
    max_nodes: int,
    cost: CostModel,
) -> Chosen:
    """Chooses.

    Args:
        pools: The candidates.
        rows_E: The sessions of the pass that decode; one at least.
        deepest_E: Greatest depth of a candidate of each, counted from the start of the text.
        budgets_E: Candidates of each, at most.
        num_rows: Rows that the pass has without candidates.
        max_nodes: Candidates in the pass, at most.
        cost: What passes cost.
    """
    entries, columns, values = _offered(pools, rows_E, deepest_E, budgets_E)
    order = (-values).argsort(kind="stable")[:max_nodes]
    tokens = len(rows_E) + np.concatenate(((0.0,), values[order].cumsum()))
    sizes = num_rows + np.arange(len(order) + 1)
    seconds = cost.seconds(sizes)
    best = int((tokens / seconds).argmax())
    # Ties and cuts leave no orphans: a parent is worth at least what its children are and stands before them.
    pace = float(tokens[best] / seconds[best])
    # At the price of the rows that were taken: behind a bend of the curve those that follow cost far more than any that is taken will.
    count = best or max_nodes
    row_s = (cost.predict(num_rows + count) - cost.predict(num_rows)) / count
    floor = min(pace * row_s, 1.0)
    if not best:
        return Chosen(tokens=float(tokens[best]), floor=floor)
    chosen = np.sort(order[:best])
    entries_N, columns_N = entries[chosen], columns[chosen]
    place = rows_E[entries_N], columns_N
    ranks_EP = np.full((len(rows_E), int(columns_N.max()) + 2), -1)
    ranks_EP[entries_N, columns_N] = rank_within(entries_N)
    return Chosen(
        tokens=float(tokens[best]),
        floor=floor,
        entries_N=entries_N,
        tokens_N=pools.tokens_SP[place],
        # The last column stands for the text, whose rank is -1.
        parents_N=ranks_EP[entries_N, pools.parents_SP[place]],
        depths_N=pools.depths_SP[place],
        columns_N=columns_N,
        drafters_N=pools.drafters_SP[place],
        estimates_N=pools.estimates_SP[place],
        values_N=values[chosen],
    )


def _offered(
    pools: Pools, rows_E: Int64s, deepest_E: Int64s, budgets_E: Int64s
) -> tuple[Int64s, Int64s, Float64s]:
    """Entry, column and value of what may be taken, by entry and column."""
    entries, columns = pools.held(rows_E)
    place = rows_E[entries], columns
    may = (pools.depths_SP[place] <= deepest_E[entries]).nonzero()[0]
    values = pools.values_SP[place][may]
    entries, columns = entries[may], columns[may]
    if (np.bincount(entries, minlength=len(rows_E)) > budgets_E).any():
        by_entry = np.lexsort((-values, entries))
        fits = rank_within(entries[by_entry]) < budgets_E[entries[by_entry]]
        within = np.sort(by_entry[fits])
        entries, columns, values = entries[within], columns[within], values[within]
    return entries, columns, values
