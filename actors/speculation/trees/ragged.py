"""Index arithmetic over groups of different sizes, without a loop over the groups."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


def starts_of(counts_E: Int64s) -> Int64s:
    """Where each group begins when they lie one behind the other; one number more than there are groups."""
    starts = np.zeros(len(counts_E) + 1, np.int64)
    counts_E.cumsum(out=starts[1:])
    return starts


def sizes_of(starts_E: Int64s) -> Int64s:
    """The size of each group; the reverse of `starts_of`."""
    sizes: Int64s = starts_E[1:] - starts_E[:-1]
    return sizes


def ranges(firsts_E: Int64s | int, counts_E: Int64s) -> Int64s:
    """`firsts[e], firsts[e] + 1, ...`, `counts[e]` numbers of each group, one group behind the other."""
    numbers: Int64s = (firsts_E + counts_E - counts_E.cumsum()).repeat(counts_E)
    numbers += np.arange(len(numbers))
    return numbers


def rank_within(groups_N: Int64s) -> Int64s:
    """Place of each item within its group; the items of a group lie one behind the other."""
    places = np.arange(len(groups_N))
    if not len(places) or groups_N[0] == groups_N[-1]:
        return places
    begins = np.zeros(len(places), np.int64)
    begins[1:] = places[1:] * (groups_N[1:] != groups_N[:-1])
    return places - np.maximum.accumulate(begins)


def first_equals(values_N: NDArray[np.uint64]) -> Int64s:
    """Index of the first value that equals each."""
    # The least index of each group, so the order of equal values does not matter.
    order = values_N.argsort()
    ordered = values_N[order]
    firsts = np.arange(len(order))
    again = (ordered[1:] == ordered[:-1]).nonzero()[0]
    if not len(again):
        return firsts
    begins = np.ones(len(again), np.bool_)
    begins[1:] = again[1:] != again[:-1] + 1
    groups = begins.cumsum() - 1
    heads, others = order[again[begins]], order[again + 1]
    least = heads.copy()
    np.minimum.at(least, groups, others)
    firsts[heads] = least
    firsts[others] = least[groups]
    return firsts


def cells_of(mask_EM: NDArray[np.bool_]) -> tuple[Int64s, Int64s]:
    """Row and column of each true cell, row by row: `nonzero` of two axes, which takes several times as long for wide masks."""
    width = mask_EM.shape[1]
    if not width:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    columns_K = mask_EM.ravel().nonzero()[0]
    rows_K = columns_K // width
    columns_K -= rows_K * width
    return rows_K, columns_K
