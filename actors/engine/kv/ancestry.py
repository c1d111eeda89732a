"""How deep the scratch rows of all slots lie, and who their ancestors are: what attention asks of trees, as arrays."""

from __future__ import annotations

import numpy as np

from outrider.actors.engine.kv.added_rows import WORD, Words, bits_of, descend
from outrider.actors.engine.protocol import Int64s


class Ancestry:
    """Depths and lineages (`added_rows.py`) of scratch rows. Rows are named by slot and number."""

    def __init__(self, num_slots: int, max_scratch: int) -> None:
        """No slot has any row."""
        # Column 0 is the last cached row, so that parent -1 finds it too.
        self._columns, self._words = 1 + max_scratch, -(-max_scratch // WORD)
        self._depths_N = np.full(num_slots * self._columns, -1, np.int64)
        self._lineages_NW = np.zeros((num_slots * self._columns, self._words), np.uint64)
        self._own_CW = bits_of(np.arange(max_scratch), self._words)

    def below(
        self,
        slots_R: Int64s,
        columns_R: Int64s,
        parents_R: Int64s,
        above_R: Int64s | None = None,
    ) -> tuple[Int64s, Words]:
        """Depths and lineages of new rows.

        Args:
            slots_R: Their slots.
            columns_R: Their numbers.
            parents_R: Numbers of their parents, -1 for the last cached row. Of parents that are new rows, too, it does not matter.
            above_R: Index of the parent among the new rows, -1: it is none of them. None: no parent is one of them.
        """
        places_R = slots_R * self._columns
        is_new_R = None if above_R is None else above_R >= 0
        places_R += parents_R + 1 if is_new_R is None else np.where(is_new_R, 0, parents_R + 1)
        depths_R = self._depths_N.take(places_R)
        depths_R += 1
        lineages_RW = self._own_CW.take(columns_R, axis=0)
        lineages_RW |= self._lineages_NW.take(places_R, axis=0)
        if above_R is not None:
            depths_R += above_R >= 0
            descend(above_R, depths_R, lineages_RW)
        return depths_R, lineages_RW

    def put(self, slots_R: Int64s, columns_R: Int64s, depths_R: Int64s, lineages_RW: Words) -> None:
        """Notes rows."""
        places_R = slots_R * self._columns
        places_R += columns_R
        places_R += 1
        self._depths_N[places_R] = depths_R
        self._lineages_NW[places_R] = lineages_RW
