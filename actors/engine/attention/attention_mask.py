"""Who sees whom in a pass, as bits.

A row sees all cached rows of its slot, its ancestors among the scratch rows, and itself; under a sliding window of w positions,
only those of them whose position is greater than its own minus w, as in transformers. Positions are depths, so a window cuts a
tree as it would cut the text of each branch.

The bits of a row are one integer, made of its lineage by a shift: in a pass over few rows every operation on arrays costs more
than a dozen on integers. They become a mask on a CPU here, and on other devices there (`static_attention.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from outrider.actors.engine.kv.slot import SlotGrowth

_ADDED = np.where(np.arange(256)[:, None] >> np.arange(8) & 1, 0.0, -np.inf).astype(np.float32)
"""What each byte of bits adds to scores."""


def first_seen(growth: SlotGrowth, window: int | None) -> int:
    """The first row of the slot that any of the new rows sees under a window, or a row before it."""
    if window is None:
        return 0
    oldest = growth.cached + min(growth.depths)
    return max(0, min(growth.cached, oldest - window + 1))


def mask_bits(growth: SlotGrowth, *, first: int = 0, window: int | None = None) -> list[int]:
    """What each new row of a slot sees.

    Args:
        growth: The rows.
        first: Row of the slot that bit 0 stands for, at most the number of cached rows.
        window: Width of the sliding window in positions; None for no window.

    Returns:
        A bit for each row of the slot from `first` on.
    """
    shift = growth.cached - first
    cached = (1 << shift) - 1
    if window is None:
        return [lineage << shift | cached for lineage in growth.lineages]
    seen: list[int] = []
    for lineage, depth in zip(growth.lineages, growth.depths, strict=True):
        hidden = growth.cached + depth - window + 1 - first
        if hidden <= shift:
            bits = lineage << shift | cached
            seen.append(bits >> hidden << hidden if hidden > 0 else bits)
            continue
        # Parents come before children, so the oldest ancestors are the lowest bits.
        for _ in range(hidden - shift):
            lineage &= lineage - 1
        seen.append(lineage << shift)
    return seen


def packed(bits: Sequence[int], num_bytes: int) -> npt.NDArray[np.uint8]:
    """Bits of rows, lowest first, eight in a byte. Shape (rows * num_bytes,)."""
    joined = b"".join([row.to_bytes(num_bytes, "little") for row in bits])
    return np.frombuffer(joined, dtype=np.uint8)


def additive(bits: Sequence[int], count: int) -> npt.NDArray[np.float32]:
    """The mask that is added to scores: 0 where a bit is set, else minus infinity. Shape (rows, count)."""
    num_bytes = (count + 7) // 8
    added = np.take(_ADDED, packed(bits, num_bytes), axis=0)
    return added.reshape(len(bits), 8 * num_bytes)[:, :count]
