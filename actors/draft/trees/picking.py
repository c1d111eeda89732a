"""Which nodes of all trees are run next: those that are worth most, as many as give most value a second. Pure.

A node's value, the product of the estimates on its path, is the probability that the target gets there: what running it is worth.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from outrider.actors.draft.trees.forest import NOT_RUN, Float64s, Forest, Int64s
from outrider.actors.speculation.trees.ragged import cells_of, rank_within


def runnable(
    forest: Forest, rows_E: Int64s, *, deepest_E: Int64s, floors_E: Float64s
) -> tuple[Int64s, Int64s, Float64s]:
    """Nodes that are worth running.

    Args:
        forest: The trees.
        rows_E: Sessions whose root is run.
        deepest_E: Depth from which on nodes have no use for children.
        floors_E: Value that a node needs.

    Returns:
        Entry, column and value of each.
    """
    width = forest.width(rows_E)
    entries_K, nodes_K = cells_of(forest.values_SM[rows_E, :width] > floors_E[:, None])
    places_K = forest.places(rows_E[entries_K], nodes_K)
    depths_K = forest.depths_SM.take(places_K)
    # Cells without a node have depth 0, as roots have.
    wanted_K = forest.scratch_SM.take(places_K) == NOT_RUN
    wanted_K &= depths_K > 0
    wanted_K &= depths_K < deepest_E[entries_K]
    wanted = wanted_K.nonzero()[0]
    values_W = forest.values_SM.take(places_K[wanted]).astype(np.float64)
    return entries_K[wanted], nodes_K[wanted], values_W


def best_first(
    entries_K: Int64s,
    nodes_K: Int64s,
    values_K: Float64s,
    *,
    rooms_E: Int64s,
    count: Callable[[Float64s], int],
) -> tuple[Int64s, Int64s, Float64s]:
    """The most valuable nodes, within the room of each session.

    Args:
        entries_K: Session of each node.
        nodes_K: Its column.
        values_K: Its value.
        rooms_E: Nodes of each session that may be run, at most.
        count: How many to take of nodes with these values, which descend.

    Returns:
        The chosen, by entry and column.
    """
    if not len(values_K):
        return entries_K, nodes_K, values_K
    order = (-values_K).argsort(kind="stable")
    wanted_E = np.bincount(entries_K, minlength=len(rooms_E))
    if np.count_nonzero(wanted_E > rooms_E):
        by_entry = order[entries_K[order].argsort(kind="stable")]
        fits_K = np.zeros(len(order), np.bool_)
        fits_K[by_entry] = rank_within(entries_K[by_entry]) < rooms_E[entries_K[by_entry]]
        order = order[fits_K[order]]
        if not len(order):
            return entries_K[:0], nodes_K[:0], values_K[:0]
    # What was given is in this order.
    chosen = order[: count(values_K[order])]
    chosen.sort()
    return entries_K[chosen], nodes_K[chosen], values_K[chosen]
