"""How long a free target waits."""

from __future__ import annotations

import pytest

from outrider.actors.target.patience import Patience


def test_patience_is_where_both_rates_are_equal() -> None:
    """Waiting yields E in w + T, a plain pass first yields E + 1 - a in 2 T."""
    patience = Patience(arrival_s=0.0, tokens=3.7, acceptance=0.8)
    limit = patience.limit_s(0.02)
    waiting = 3.7 / (limit + 0.02)
    plain_first = (3.7 + 0.2) / 0.04
    assert waiting == pytest.approx(plain_first)


def test_silent_drafter_soon_costs_nothing() -> None:
    """After a few waits in vain the target does not wait."""
    patience, waits = Patience(), 0
    while (limit := patience.limit_s(0.01)) > 0.0 and waits < 100:
        waits += 1
        patience.observe_arrival(2.0 * limit)
    assert waits < 10


def test_patience_comes_back_with_the_drafter() -> None:
    """Candidates that arrive in time again are waited for again."""
    patience = Patience()
    for _ in range(50):
        patience.observe_arrival(1.0)
    assert patience.limit_s(0.01) == 0.0
    for _ in range(50):
        patience.observe_arrival(0.001)
    assert patience.limit_s(0.01) > 0.0


def test_useless_candidates_are_not_waited_for_long() -> None:
    """If the first level hardly ever holds the draw, patience shrinks towards nothing."""
    patience = Patience()
    for _ in range(50):
        patience.observe_round(1)
    assert patience.limit_s(0.01) < 0.001


def test_new_tree_ripens_while_levels_come_fast() -> None:
    """A level that promises much more than the target's pace is waited for; a small one, or a slow drafter's, is not."""
    patience = Patience(tokens=3.0, acceptance=0.8, gap_s=0.001)
    assert patience.ripening_s(0.8, 0.018) > 0.001
    assert patience.ripening_s(0.1, 0.018) == 0.0
    for _ in range(50):
        patience.observe_gap(0.01)
    assert patience.ripening_s(0.8, 0.018) == 0.0


def test_first_ripening_is_judged_by_the_answer() -> None:
    """Before a gap was seen, half the time of an answer stands for it."""
    assert Patience(arrival_s=0.002, acceptance=0.8).ripening_s(0.8, 0.018) > 0.0
    assert Patience(arrival_s=1.0, acceptance=0.8).ripening_s(0.8, 0.018) == 0.0
