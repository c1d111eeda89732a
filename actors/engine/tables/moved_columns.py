"""What engines without keys and values keep of each row, moved along with the rows."""

from __future__ import annotations

from typing import Any

from outrider.actors.engine.protocol import Moves


def move_columns(columns_SC: Any, moves: Moves) -> None:
    """Puts the last row of each path into column 0, and the kept ones into the next columns, in place.

    Args:
        columns_SC: An array or a tensor; of each slot: its last cached row, then its scratch rows. Shape (S, 1 + C, ...).
        moves: What becomes of the scratch rows.
    """
    counts_E = (moves.paths_EP >= 0).sum(1)
    moving = counts_E.nonzero()[0]
    slots_N = moves.slots_E[moving]
    columns_SC[slots_N, 0] = columns_SC[slots_N, moves.paths_EP[moving, counts_E[moving] - 1] + 1]
    entries_K, new_K = (moves.keeps_EK >= 0).nonzero()
    slots_K = moves.slots_E[entries_K]
    columns_SC[slots_K, new_K + 1] = columns_SC[slots_K, moves.keeps_EK[entries_K, new_K] + 1]
