"""Which keys and values have to lie elsewhere when scratch rows become cached ones and others stay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.actors.engine.protocol import Int64s, Moves


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MovedRows:
    """Rows that are to lie elsewhere in their slots, counted from the first row. Shape (N,) each."""

    slots_N: Int64s
    sources_N: Int64s
    targets_N: Int64s
    """Ascending in each slot, and none beyond its source."""


_NOTHING = np.zeros(0, np.int64)

NO_ROWS = MovedRows(slots_N=_NOTHING, sources_N=_NOTHING, targets_N=_NOTHING)
"""Everything lies where it should."""


def moved_rows(moves: Moves, cached_S: Int64s) -> MovedRows:
    """Path and kept rows go behind the cached ones, in this order.

    Args:
        moves: What becomes of the scratch rows.
        cached_S: Cached rows of all slots, those of the paths included.
    """
    num_path, num_kept = moves.paths_EP.shape[1], moves.keeps_EK.shape[1]
    sources_EN, targets_EN = moves.paths_EP, np.arange(num_path)[None]
    counts_E = None
    if num_kept:
        counts_E = np.count_nonzero(moves.paths_EP >= 0, axis=1)
        sources_EN = np.concatenate((sources_EN, moves.keeps_EK), axis=1)
        path_EP = np.broadcast_to(targets_EN, moves.paths_EP.shape)
        targets_EN = np.concatenate((path_EP, np.arange(num_kept) + counts_E[:, None]), axis=1)
    entries_N, places_N = ((sources_EN >= 0) & (sources_EN != targets_EN)).nonzero()
    if not len(entries_N):
        return NO_ROWS
    if counts_E is None:
        counts_E = np.count_nonzero(moves.paths_EP >= 0, axis=1)
    targets_EN = np.broadcast_to(targets_EN, sources_EN.shape)
    slots_N = moves.slots_E[entries_N]
    first_N = cached_S[slots_N] - counts_E[entries_N]
    return MovedRows(
        slots_N=slots_N,
        sources_N=first_N + sources_EN[entries_N, places_N],
        targets_N=first_N + targets_EN[entries_N, places_N],
    )
