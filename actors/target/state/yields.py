"""How many tokens a pass over candidates commits, learned for each session: what a wait for candidates is judged by."""

from __future__ import annotations

import numpy as np

from outrider.actors.speculation import learning
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.frozen_pool import TRY_AGAIN
from outrider.actors.target.state.session_table import Bools, SessionTable

PRIOR_YIELD = 2.5
"""Tokens that a pass over candidates is expected to commit before a session has had one, as with a small distilled drafter. If every level held the
draw equally often, each would in 1 - 1 / 2.5 of the cases."""


def begin(table: SessionTable, rows: Int64s) -> None:
    """Sets what is expected of sessions before anything is observed."""
    table.yields_S[rows], table.hits_S[rows] = table.hoped_S[rows], 1.0 - 1.0 / PRIOR_YIELD
    table.bare_S[rows] = 0


def took(
    table: SessionTable, rows_E: Int64s, counts_E: Int64s, *, had_E: Bools, survives_E: Bools
) -> None:
    """Learns from a pass.

    Where candidates do not survive a verdict, they come by waiting alone. If a few rejections in a row ended the waits, nothing would be learned any more. So
    yields are learned slowly there, and forgotten after `TRY_AGAIN` passes without candidates.

    Args:
        table: The sessions.
        rows_E: Those that were decided.
        counts_E: Tokens that each committed.
        had_E: Drafters' candidates were in the pass.
        survives_E: See `CandidateStore.survives`.
    """
    table.bare_S[rows_E] = np.where(had_E, 0, table.bare_S[rows_E] + 1)
    begin(table, rows_E[~survives_E & (table.bare_S[rows_E] >= TRY_AGAIN)])
    if not np.count_nonzero(had_E):
        return
    rows, counts = rows_E[had_E], counts_E[had_E]
    share = 1.0 - np.where(survives_E[had_E], learning.ROUNDS, learning.PASSES)
    table.yields_S[rows] += share * (counts - table.yields_S[rows])
    table.hits_S[rows] += share * ((counts > 1) - table.hits_S[rows])


def in_vain(table: SessionTable, rows: Int64s) -> None:
    """Learns from a wait in vain: the pass has no candidates and commits one token."""
    share = 1.0 - learning.ROUNDS
    table.yields_S[rows] += share * (1.0 - table.yields_S[rows])
    table.hits_S[rows] -= share * table.hits_S[rows]
