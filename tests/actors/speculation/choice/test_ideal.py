"""The bounds, against the closed forms and the table of the reference."""

from __future__ import annotations

import pytest

from outrider.actors.speculation.ideal import (
    drafter_bound,
    geometric,
    ideal,
    law_of,
    lockstep_speed_up,
    mean_run,
    target_bound,
)


@pytest.mark.parametrize(
    ("acceptance", "draft_cost", "round_trip", "expected"),
    [
        (0.6, 0.05, 0.0, 2.326),
        (0.6, 0.1, 1.0, 1.448),
        (0.6, 0.1, 3.0, 1.112),
        (0.8, 0.05, 1.0, 2.510),
        (0.8, 0.1, 0.25, 3.125),
        (0.8, 0.3, 0.0, 2.273),
        (0.9, 0.1, 3.0, 2.330),
    ],
)
def test_drafter_bound(
    acceptance: float, draft_cost: float, round_trip: float, expected: float
) -> None:
    """The bound with a geometric law is the published one."""
    bound = drafter_bound(geometric(acceptance), draft_cost=draft_cost, round_trip=round_trip)
    assert bound == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("acceptance", "levels", "draft_cost", "round_trip", "expected"),
    [(0.8, 8, 0.05, 0.0, 3.092), (0.8, 10, 0.05, 1.0, 1.828), (0.9, 18, 0.1, 3.0, 1.491)],
)
def test_lockstep(
    acceptance: float, levels: int, draft_cost: float, round_trip: float, expected: float
) -> None:
    """Lock-step reaches what the reference says."""
    reached = lockstep_speed_up(
        sum(acceptance**depth for depth in range(levels + 1)),
        pass_cost=1.0,
        levels=levels,
        draft_cost=draft_cost,
        round_trip=round_trip,
    )
    assert reached == pytest.approx(expected, abs=6e-4)


def test_law_of_runs() -> None:
    """Runs end with a miss; the one that the end of the text cuts off does not count."""
    hits = [True, True, False, False, True, False, True, True, True]
    assert law_of(hits) == {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}


def test_no_law_without_a_miss() -> None:
    """A text without a miss tells no law."""
    with pytest.raises(ValueError, match="no run ended within 3 tokens"):
        law_of([True] * 3)


def test_mean_run_of_a_geometric_law() -> None:
    """a / (1 - a)."""
    assert mean_run(geometric(0.8)) == pytest.approx(4.0)


def test_certain_acceptance_is_refused() -> None:
    """A run that never ends has no law."""
    with pytest.raises(ValueError, match="acceptance is 1"):
        geometric(1.0)


def test_ideal_is_the_lesser_bound_and_never_below_plain_decoding() -> None:
    """A cheap drafter leaves the target's bound, a far one leaves nothing but plain decoding."""
    law = geometric(0.8)
    near = ideal(law, tokens_per_pass=3.0, pass_cost=1.2, draft_cost=0.01, round_trip=0.0)
    assert near == pytest.approx(2.5)
    far = ideal(law, tokens_per_pass=3.0, pass_cost=1.2, draft_cost=0.01, round_trip=1e6)
    assert far == pytest.approx(1.0)
    assert target_bound(1.1, pass_cost=1.5) == 1.0


def test_a_law_counts_every_run() -> None:
    """Short runs are more frequent here, and no hit at all is a law as well."""
    assert law_of([False, True, False, False, False]) == {0: 3 / 4, 1: 1 / 4}
    assert mean_run(geometric(0.0)) == 0.0
