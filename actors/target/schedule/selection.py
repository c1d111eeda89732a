"""Which candidates a pass takes: those that raise the tokens it commits in a second.

Each session offers its best nodes, at most as many and as deep as its request allows; of all together the best are taken as long
as one more raises the pace. So trees are deep while the target has nothing else to do and vanish when rows are dear; a pass with
candidates is never expected to be slower, per token, than one without.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.candidate_pools import Pools
from outrider.actors.target.schedule.cost import CostModel

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Selection:
    """Candidates chosen for a pass, those of an entry one behind the other, parents first."""

    entries_N: Int64s
    """The entry of each."""

    columns_N: Int64s
    """Its column in the pool."""

    values_N: Float64s
    """Probability that its path is drawn."""

    tokens: float
    """Tokens that the pass is expected to commit."""

    floor: float
    """What a candidate had to be worth: the tokens that the target commits in the time of a row, 0 to 1."""


def select(
    pools: Pools,
    rows_E: Int64s,
    *,
    deepest_E: Int64s,
    budgets_E: Int64s,
    num_rows: int,
    max_nodes: int,
    cost: CostModel,
) -> Selection:
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
    order = np.argsort(-values, kind="stable")[:max_nodes]
    tokens = len(rows_E) + np.concatenate(([0.0], np.cumsum(values[order])))
    sizes = num_rows + np.arange(len(order) + 1)
    seconds = cost.seconds(sizes)
    best = int((tokens / seconds).argmax())
    chosen = np.sort(order[:best])
    # Ties and cuts leave no orphans: a parent is worth at least what its children are and stands before them.
    pace = float(tokens[best] / seconds[best])
    row_s = cost.predict(num_rows + best + max_nodes) - cost.predict(num_rows + best)
    return Selection(
        entries_N=entries[chosen],
        columns_N=columns[chosen],
        values_N=values[chosen],
        tokens=float(tokens[best]),
        floor=min(pace * row_s / max_nodes, 1.0),
    )


def _offered(
    pools: Pools, rows_E: Int64s, deepest_E: Int64s, budgets_E: Int64s
) -> tuple[Int64s, Int64s, Float64s]:
    """Entry, column and value of what may be taken, by entry and column."""
    width = pools.width(rows_E)
    if not width:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, np.zeros(0)
    may_EP = pools.filled(rows_E, width)
    may_EP &= pools.depths_SP[rows_E, :width] <= deepest_E[:, None]
    values_EP = np.where(may_EP, pools.values_SP[rows_E, :width], -1.0)
    if (may_EP.sum(axis=1) > budgets_E).any():
        ranks_EP = np.empty(values_EP.shape, np.int64)
        order_EP = np.argsort(-values_EP, axis=1, kind="stable")
        np.put_along_axis(ranks_EP, order_EP, np.arange(width)[None, :], axis=1)
        may_EP &= ranks_EP < budgets_E[:, None]
    entries, columns = np.nonzero(may_EP)
    return entries, columns, values_EP[entries, columns]
