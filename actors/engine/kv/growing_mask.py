"""The attention mask of a slot's tree, kept while the tree grows; a pass takes a slice of it.

A tree that grows pass by pass has a mask that grows at its lower right corner: what a row sees never changes, and a new
row sees what its parent sees, and itself. So the mask of all scratch rows is kept in one square, a pass appends its rows
to it, and what attention needs is a rectangle of it, with zeros to its left for the cached rows, which all rows see. The
zeros are there already: the square has as many columns of them to its left as the context is long, and the slice begins
further to the left the longer the text is. Nothing is copied.

Source: Lu et al. 2024, arXiv 2409.10644, whose mask is made once for the largest tree of a fixed shape, of which a
smaller one is a leading block. Here the shape is not known in advance, so the square is filled as it comes; for trees of
fixed shape, level by level, the slices are theirs. `plan.sight` makes the same mask from nothing, for comparison and for
windows, and for rows whose parents are in the same pass, where there is nothing to grow from.

Invariant: the first `count` rows of the square are those of the first `count` scratch rows of the slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_BYTES = 64 * 2**20
"""Bytes of the masks of all slots, at most; where they would take more, masks are built. A context of 2,048 rows with 256
scratch rows takes 2.4 MB a slot."""


class GrowingMask:
    """The mask of one slot's scratch rows."""

    def __init__(self, *, max_context: int, max_scratch: int) -> None:
        """An empty square with room for so many scratch rows, behind so many cached ones."""
        self._first = max_context
        # Row 0 is the last cached row's: it sees no scratch row. Scratch row i is row 1 + i.
        self._rows = np.zeros((1 + max_scratch, max_context + max_scratch), dtype=np.float32)
        self._square = self._rows[:, max_context:]
        self._square[:] = -np.inf
        self.count = 0
        """Scratch rows whose rows are here."""

    def slice(
        self, *, cached: int, parents: Sequence[int], lineages: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        """The mask of new rows: 0 where a row sees another, else minus infinity. Do not write into it.

        Args:
            cached: Number of cached rows.
            parents: Scratch row of each new row's parent, -1 for the last cached row; none is new itself.
            lineages: Of the scratch rows that are there already, a bit for each row on the way.

        Returns:
            Shape (new rows, cached + scratch + new rows).
        """
        scratch, num_new = len(lineages), len(parents)
        if self.count < scratch:
            self._catch_up(lineages)
        end = scratch + num_new
        square = self._square
        # Row by row, since indexing by a list costs more than copying four rows.
        for row, parent in enumerate(parents, start=1 + scratch):
            square[row] = square[1 + parent]
            square[row, row - 1] = 0.0
        self.count = end
        return self._rows[1 + scratch : 1 + end, self._first - cached : self._first + end]

    def forget_from(self, count: int) -> None:
        """Drops what is known of scratch rows from `count` on."""
        self.count = min(self.count, count)

    def keep(self, rows: Sequence[int]) -> None:
        """Keeps these scratch rows, ascending, which are renumbered 0, 1, ...; the others are gone."""
        if not rows or rows[-1] >= self.count:
            self.count = 0
            return
        kept, num_kept = np.array(rows), len(rows)
        self._square[1 : 1 + num_kept, :num_kept] = self._square[1 + kept[:, None], kept]
        self._square[1 : 1 + num_kept, num_kept:] = -np.inf
        self.count = num_kept

    def _catch_up(self, lineages: Sequence[int]) -> None:
        """Fills in rows that came by passes that did not ask for a slice."""
        for row in range(self.count, len(lineages)):
            self._square[1 + row] = -np.inf
            self._square[1 + row, lineage_rows(lineages[row])] = 0.0
        self.count = len(lineages)


def lineage_rows(lineage: int) -> list[int]:
    """The scratch rows whose bits are set."""
    rows: list[int] = []
    while lineage:
        lowest = lineage & -lineage
        rows.append(lowest.bit_length() - 1)
        lineage ^= lowest
    return rows


def fits(*, num_slots: int, max_context: int, max_scratch: int) -> bool:
    """Whether masks of so many slots are small enough to be kept."""
    return num_slots * (1 + max_scratch) * (max_context + max_scratch) * 4 <= MAX_BYTES
