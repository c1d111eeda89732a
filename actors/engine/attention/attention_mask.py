"""Who sees whom in a pass, as bits.

A row sees all cached rows of its slot, its ancestors among the scratch rows, and itself; under a sliding window of w positions,
only those of them whose position is greater than its own minus w, as in transformers. Positions are depths, so a window cuts a
tree as it would cut the text of each branch.

The bits of a row are 64-bit words, made of its lineage by a shift. They become a mask on a CPU here, and on other devices there
(`static_attention.py`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from outrider.actors.engine.kv.added_rows import WORD, AddedRows, Words
from outrider.actors.engine.protocol import Int64s

_ADDED = np.where(np.arange(256)[:, None] >> np.arange(8) & 1, 0.0, -np.inf).astype(np.float32)
"""What each byte of bits adds to scores."""

_BELOW = np.array([(1 << count) - 1 for count in range(1 + WORD)], np.uint64)
"""So many bits, the lowest ones."""

_ONE = np.uint64(1)
_LAST_BIT = np.uint64(WORD - 1)


def num_words(shown: int) -> int:
    """Words of the bits of so many rows."""
    return -(-shown // WORD)


def first_seen(added: AddedRows, window: int | None) -> Int64s:
    """For each entry the first row of its slot that any of its new rows sees under a window, or a row before it."""
    if window is None:
        return np.zeros(len(added.slots_B), np.int64)
    oldest_B = added.cached_B + np.minimum.reduceat(added.depths_R, added.starts[:-1])
    return np.clip(oldest_B - window + 1, 0, added.cached_B)


def mask_bits(
    added: AddedRows,
    rows_Q: Int64s,
    *,
    firsts_Q: Int64s | int,
    words: int,
    window: int | None = None,
) -> Words:
    """What some rows see.

    Args:
        added: The rows of a pass.
        rows_Q: Which of them.
        firsts_Q: Row of its slot that bit 0 stands for, for each or for all; at most the number of cached rows.
        words: Of each; enough for every row of its slot from there on.
        window: Width of the sliding window in positions; None for no window.

    Returns:
        A bit for each row of the slot, the lowest first. Shape (Q, words).
    """
    shifts_Q = added.cached_B.take(added.entries_R.take(rows_Q)) - firsts_Q
    lineages_QW = added.lineages_RW.take(rows_Q, axis=0)
    if window is None:
        seen_QS = _below(shifts_Q, words)
    else:
        hidden_Q = shifts_Q + added.depths_R.take(rows_Q) - window + 1
        seen_QS = _below(shifts_Q, words) & ~_below(np.minimum(hidden_Q, shifts_Q), words)
        _forget_oldest(lineages_QW, hidden_Q - shifts_Q)
    return _joined(seen_QS, lineages_QW, shifts_Q)


def additive(bits_QS: Words, count: int) -> npt.NDArray[np.float32]:
    """The mask that is added to scores: 0 where a bit is set, else minus infinity. Shape (Q, count)."""
    octets_QB = bits_QS.view(np.uint8)[:, : (count + 7) // 8]
    added = np.take(_ADDED, octets_QB, axis=0)
    return added.reshape(len(bits_QS), -1)[:, :count]


def _below(counts_Q: Int64s, words: int) -> Words:
    """The lowest bits, so many of each. Shape (Q, words)."""
    bits_QS = counts_Q[:, None] - WORD * np.arange(words)
    below_QS: Words = _BELOW.take(
        np.minimum(np.maximum(bits_QS, 0, out=bits_QS), WORD, out=bits_QS)
    )
    return below_QS


def _joined(seen_QS: Words, lineages_QW: Words, shifts_Q: Int64s) -> Words:
    """Bits with those of lineages, which begin at a bit each."""
    words, added = seen_QS.shape[1], lineages_QW.shape[1] + 1
    part_Q1 = (shifts_Q & 63).view(np.uint64)[:, None]
    # With room for what lies behind the last word, where no bit is set.
    joined_QS = np.zeros((len(seen_QS), words + added), np.uint64)
    joined_QS[:, :words] = seen_QS
    spread_QW = np.zeros((len(seen_QS), added), np.uint64)
    np.left_shift(lineages_QW, part_Q1, out=spread_QW[:, :-1])
    # A shift by 64 bits would be none; two shifts are.
    spread_QW[:, 1:] |= lineages_QW >> _ONE >> (_LAST_BIT - part_Q1)
    columns_QW = (shifts_Q >> 6)[:, None] + np.arange(added)
    joined_QS[np.arange(len(seen_QS))[:, None], columns_QW] |= spread_QW
    return joined_QS[:, :words]


def _forget_oldest(lineages_QW: Words, counts_Q: Int64s) -> None:
    """Clears so many of the lowest bits of each, in place: parents come before children, so those are the oldest ancestors."""
    left_Q = counts_Q.copy()
    rows = (left_Q > 0).nonzero()[0]
    while len(rows):
        words = (lineages_QW[rows] != 0).argmax(1)
        lowest = lineages_QW[rows, words]
        lineages_QW[rows, words] = lowest & (lowest - _ONE)
        left_Q[rows] -= 1
        rows = rows[left_Q[rows] > 0]
