"""The rows that a pass adds to its slots, as arrays: where each lies, and who its ancestors are.

A scratch row knows its parent, its depth below the last cached row (a child of it has depth 0) and its *lineage*: a bit for each scratch
row on the way from the last cached row to itself, itself included, in 64-bit words, the lowest row first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.engine.kv.pass_refusals import check_lengths
from outrider.actors.engine.protocol import Batch, Int64s, Rows

Words = NDArray[np.uint64]

WORD = 64
"""Bits of a word."""

_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddedRows:
    """Rows of one pass, an entry's behind another's. Shapes: B entries, R rows."""

    slots_B: Int64s
    cached_B: Int64s
    """Cached rows of each slot."""

    scratch_B: Int64s
    """Scratch rows that are there already."""

    starts: Int64s
    """First row of each entry, and the number of all rows at the end."""

    entries_R: Int64s
    """The entry of each row."""

    tokens_R: Int64s
    parents_R: Int64s
    """As `Rows.parents`."""

    columns_R: Int64s
    """Number of each among the scratch rows of its slot."""

    slots_R: Int64s
    """The slot of each."""

    depths_R: Int64s
    lineages_RW: Words
    """Both empty if the table keeps no ancestry."""

    @property
    def num_rows(self) -> int:
        """Rows in all."""
        return len(self.tokens_R)

    @property
    def counts_B(self) -> Int64s:
        """Rows of each entry."""
        counts_B: Int64s = self.starts[1:] - self.starts[:-1]
        return counts_B

    @property
    def totals_B(self) -> Int64s:
        """Rows of each slot with these."""
        return self.cached_B + self.scratch_B + self.counts_B


def bits_of(columns_R: Int64s, num_words: int) -> Words:
    """A bit for each row's own number. Shape (R, words)."""
    words_RW = np.zeros((len(columns_R), num_words), np.uint64)
    words_RW[np.arange(len(columns_R)), columns_R >> 6] = _ONE << (columns_R & 63).view(np.uint64)
    return words_RW


def descend(above_R: Int64s, depths_R: Int64s, lineages_RW: Words) -> None:
    """Adds to each row what its ancestors among the same rows have, in place: as many steps as the logarithm of the longest way up.

    Args:
        above_R: The row that is each one's parent; negative: it is none of these. Is written into.
        depths_R: The depth of rows without a parent here, 1 for the others.
        lineages_RW: What each has without those.
    """
    rows = (above_R >= 0).nonzero()[0]
    while len(rows):
        above = above_R[rows]
        depths_R[rows] += depths_R[above]
        lineages_RW[rows] |= lineages_RW[above]
        above_R[rows] = above_R[above]
        rows = rows[above_R[rows] >= 0]


def packed(batch: Sequence[Rows]) -> Batch:
    """A batch as arrays; entries may be wrong still.

    Raises:
        ValueError: The batch is empty, or an entry has other than one parent for each token.
    """
    if not batch:
        raise ValueError("the batch is empty; give at least one entry")
    if isinstance(batch, Batch):
        return batch
    for rows in batch:
        check_lengths(rows)
    return Batch.of(batch)
