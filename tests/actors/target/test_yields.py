"""What passes over candidates bring, learned for each session."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.target.candidates.frozen_pool import TRY_AGAIN
from outrider.actors.target.state import yields
from outrider.actors.target.state.session_table import SessionTable

BOTH = np.array([0, 1])
HOPED = np.array([yields.PRIOR_YIELD, 5.0])
"""Of pooled candidates, and of a frozen chain of four."""


def table() -> SessionTable:
    """Two sessions that begin."""
    made = SessionTable(2, 64)
    made.hoped_S[BOTH] = HOPED
    yields.begin(made, BOTH)
    return made


def took(made: SessionTable, counts: list[int], had: list[bool], survives: list[bool]) -> None:
    """A pass."""
    yields.took(made, BOTH, np.array(counts), had_E=np.array(had), survives_E=np.array(survives))


def test_only_passes_with_candidates_count() -> None:
    """And go towards what they commit."""
    made = table()
    took(made, [4, 1], [True, False], [True, True])
    assert made.yields_S[0] > yields.PRIOR_YIELD
    assert made.yields_S[1] == HOPED[1]
    assert made.hits_S[0] > made.hits_S[1]
    for _ in range(100):
        took(made, [4, 1], [True, False], [True, True])
    assert made.yields_S[0] == pytest.approx(4.0)
    assert made.hits_S[0] == pytest.approx(1.0)


def test_where_candidates_do_not_survive_it_is_learned_slowly() -> None:
    """Three rejections in a row do not say that drafting is worth nothing."""
    made = table()
    for _ in range(3):
        took(made, [1, 1], [True, True], [True, False])
    assert made.yields_S[0] < made.yields_S[1]
    assert made.yields_S[1] > 2.0


def test_waits_in_vain_are_forgotten_where_nothing_else_would_teach() -> None:
    """A session without candidates but by waiting is waited for again after a while; one whose candidates survive learns from them."""
    made = table()
    for _ in range(20):
        yields.in_vain(made, BOTH)
    assert (made.yields_S < 1.1).all()
    for _ in range(TRY_AGAIN - 1):
        took(made, [1, 1], [False, False], [True, False])
    assert (made.yields_S < 1.1).all()
    took(made, [1, 1], [False, False], [True, False])
    assert made.yields_S[0] < 1.1
    assert made.yields_S[1] == HOPED[1]
