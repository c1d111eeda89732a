"""How many tokens a pass over candidates commits, learned for each session: what a wait for candidates is judged by."""

from __future__ import annotations

import numpy as np

from outrider.actors.speculation import learning
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.frozen_pool import TRY_AGAIN
from outrider.actors.target.state.session_table import Bools, SessionTable

PRIOR_YIELD = 2.5
"""Tokens that a pass over candidates is expected to commit before a session has seen any: a small distilled drafter's. If every level held the
draw as often as the first one, that would do so in 1 - 1 / 2.5 of the cases."""


def begin(table: SessionTable, rows: Int64s) -> None:
    """Nothing is known of sessions yet."""
    table.yields_S[rows], table.hits_S[rows] = table.hoped_S[rows], 1.0 - 1.0 / PRIOR_YIELD
    table.bare_S[rows] = 0


def took(
    table: SessionTable, rows_E: Int64s, counts_E: Int64s, *, had_E: Bools, survives_E: Bools
) -> None:
    """Learns from a pass.

    Where no candidates survive a verdict, there are none but by waiting: a few rejections in a row that end it would be learned from no more. So it is learned
    slowly there, and after `TRY_AGAIN` passes without candidates forgotten.

    Args:
        table: The sessions.
        rows_E: Those that were decided.
        counts_E: Tokens that each committed.
        had_E: Drafters' candidates were in the pass.
        survives_E: See `CandidateStore.survives`.
    """
    table.bare_S[rows_E] = np.where(had_E, 0, table.bare_S[rows_E] + 1)
    begin(table, rows_E[~survives_E & (table.bare_S[rows_E] >= TRY_AGAIN)])
    rows, counts = rows_E[had_E], counts_E[had_E]
    share = 1.0 - np.where(survives_E[had_E], learning.ROUNDS, learning.PASSES)
    table.yields_S[rows] += share * (counts - table.yields_S[rows])
    table.hits_S[rows] += share * ((counts > 1) - table.hits_S[rows])


def in_vain(table: SessionTable, rows: Int64s) -> None:
    """Learns that a pass was waited for and had no candidates: it commits one token, and waiting is worth no more than that."""
    share = 1.0 - learning.ROUNDS
    table.yields_S[rows] += share * (1.0 - table.yields_S[rows])
    table.hits_S[rows] -= share * table.hits_S[rows]
