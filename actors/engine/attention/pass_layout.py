"""The layout of one pass: whose rows lie where in the packed batch, and where sessions that share a call lie in that.

A pass runs the rows of all sessions one after another, as one sequence without padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outrider.actors.engine.kv.added_rows import AddedRows
from outrider.actors.engine.protocol import WANTS, Batch, Int64s

NOBODY = -1
"""Stands for an entry of a call that is no session's."""

_ALL = WANTS.index("all")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassLayout:
    """One pass."""

    added: AddedRows
    """Its rows, in the order of the packed batch."""

    slots: list[int]
    """Of the entries, as plain numbers, for what is done entry by entry on a CPU; likewise:"""
    starts: list[int]
    """First packed row of each, and the number of all at the end."""
    totals: list[int]
    """Rows of each one's slot with the new ones."""

    wanted_W: Int64s
    """Packed rows that logits are wanted for, ascending."""

    offsets: tuple[int, ...]
    """Where each entry's wanted rows start in `wanted_W`; one more than there are entries."""

    @property
    def num_rows(self) -> int:
        """Packed rows."""
        return self.starts[-1]

    @property
    def num_sessions(self) -> int:
        """Entries of the batch."""
        return len(self.slots)

    def positions(self) -> Int64s:
        """Of the packed rows."""
        added = self.added
        positions_R: Int64s = added.cached_B[added.entries_R] + added.depths_R
        return positions_R

    def written(self, capacity: int) -> Int64s:
        """Row of the storage that each packed row's keys and values go to; a slot has `capacity` rows."""
        added = self.added
        first_B = added.slots_B * capacity + added.cached_B
        written_R: Int64s = first_B[added.entries_R] + added.columns_R
        return written_R

    def queries(self, entries_Q: Int64s, num_queries: int) -> Int64s:
        """Packed rows of sessions that share a kernel call, padded to equally many.

        Args:
            entries_Q: Entries of the batch, or `NOBODY`.
            num_queries: N, at least the rows of each.

        Returns:
            Shape (Q * N,): an entry's padding repeats its first row, and nobody's that of an entry of the same call, which is shown as
            many rows.
        """
        is_somebody_Q = entries_Q != NOBODY
        somebody = entries_Q[is_somebody_Q.argmax()]
        starts_Q = self.added.starts[np.where(is_somebody_Q, entries_Q, somebody)]
        counts_Q = np.where(is_somebody_Q, self.added.counts_B[entries_Q], 0)
        ranks_N = np.arange(num_queries)
        queries_QN = np.where(ranks_N < counts_Q[:, None], ranks_N, 0) + starts_Q[:, None]
        return queries_QN.reshape(-1)

    def places(self, firsts_B: Int64s) -> Int64s:
        """Where the packed rows are among queries, if those of entry b begin at `firsts_B[b]`."""
        added = self.added
        places_R: Int64s = (firsts_B - added.starts[:-1])[added.entries_R]
        places_R += np.arange(len(places_R))
        return places_R


def plan_pass(batch: Batch, added: AddedRows) -> PassLayout:
    """Packs a checked batch."""
    counts_B, wanted_E = added.counts_B, batch.wanted_E
    starts = added.starts.tolist()
    offsets: tuple[int, ...] = tuple(starts)
    if np.count_nonzero(wanted_E != _ALL):
        wanted_R = (wanted_E == _ALL)[added.entries_R]
        wanted_R[(added.starts[1:] - 1)[wanted_E > 0]] = True
        wanted_W = wanted_R.nonzero()[0]
        wants_B = np.where(wanted_E == _ALL, counts_B, wanted_E)
        offsets = (0, *wants_B.cumsum().tolist())
    else:
        wanted_W = np.arange(starts[-1])
    return PassLayout(
        added=added,
        slots=added.slots_B.tolist(),
        starts=starts,
        totals=added.totals_B.tolist(),
        wanted_W=wanted_W,
        offsets=offsets,
    )
