"""What a drafter knows of the passes that end before its candidates arrive."""

from __future__ import annotations

import pytest

from outrider.actors.draft.sending.pace import TargetPace
from outrider.actors.exchange.frames import clock_us
from outrider.actors.exchange.verdicts import TargetActivity


def _activity(wait_s: float = 0.0) -> TargetActivity:
    return TargetActivity(pass_s=0.010, free_s=0.0, wait_s=wait_s, floor=0.0)


@pytest.mark.parametrize(
    ("round_trip_s", "wait_s", "passes"),
    [(0.0, 0.0, 0), (0.009, 0.0, 0), (0.025, 0.0, 2), (0.161, 0.0, 16), (0.025, 0.012, 1)],
)
def test_passes_that_end_on_the_way_commit_a_token_each(
    round_trip_s: float, wait_s: float, passes: int
) -> None:
    """Those of 10 ms that fit into the way there and back, less what the target waits."""
    pace = TargetPace(round_trip_s)
    assert pace.passes_before == 0, "of a silent target nothing is known"
    pace.told(_activity(wait_s), 1, 1.0, num_sessions=1)
    assert pace.passes_before == passes


@pytest.mark.parametrize(
    ("round_trip_s", "num_tokens", "cost"),
    [(0.0, 2, 0.1), (0.0, 6, 0.3), (0.002, 6, 0.6), (0.005, 6, 1.0), (0.050, 2, 1.0)],
)
def test_what_is_fetched_costs_what_a_session_commits_meanwhile(
    round_trip_s: float, num_tokens: int, cost: float
) -> None:
    """Two sessions, passes of 10 ms: a tenth of a pass at least, a token at most."""
    pace = TargetPace(round_trip_s)
    assert pace.fetch_cost == 1.0, "of a silent target nothing is known"
    for _ in range(3):
        pace.told(_activity(), num_tokens, 1.0, num_sessions=2)
    assert pace.fetch_cost == pytest.approx(cost)


def test_frames_without_tokens_leave_a_price() -> None:
    """A verdict that only puts a session right commits nothing, and a frame may have none."""
    pace = TargetPace(0.0)
    pace.told(_activity(), 0, 1.0, num_sessions=0)
    assert pace.fetch_cost == 1.0
    pace.told(_activity(), 0, 1.0, num_sessions=1)
    assert pace.fetch_cost == pytest.approx(0.1)


def _pace(*, trip_s: float, verdicts: int = 60, free_s: float = 0.0) -> TargetPace:
    """After so many verdicts whose answers have been so long on the way; the first message took no time."""
    pace = TargetPace(0.0)
    target = TargetActivity(pass_s=0.010, free_s=free_s, wait_s=0.0, floor=0.0)
    for index in range(verdicts):
        now = 1.0 + index
        pace.told(target, 1, now, num_sessions=1, echo_us=clock_us(now - trip_s))
    return pace


@pytest.mark.parametrize(("trip_s", "passes"), [(0.004, 0), (0.025, 2), (0.161, 16)])
def test_a_way_that_has_become_longer_is_noticed(trip_s: float, passes: int) -> None:
    """As if the first message had taken so long."""
    pace = _pace(trip_s=trip_s)
    assert pace.passes_before == passes
    assert pace.fetch_cost == pytest.approx(min(trip_s / 0.010, 1.0), rel=1e-3)


def test_a_way_that_has_become_shorter_is_noticed() -> None:
    """A first message to a target that was busy says little."""
    pace = TargetPace(0.050)
    for index in range(60):
        now = 1.0 + index
        pace.told(_activity(), 1, now, num_sessions=1, echo_us=clock_us(now - 0.0002))
    assert pace.passes_before == 0
    assert pace.fetch_cost == pytest.approx(0.1)


def test_candidates_go_out_earlier_by_the_way() -> None:
    """The target is free 20 ms after its verdict: what takes 5 ms to come and go is sent before 15 are over, not before 20."""
    for trip_s in (0.0, 0.005):
        pace = _pace(trip_s=trip_s, free_s=0.020)
        verdict_s = 60.0
        latest_s = verdict_s + 0.020 - trip_s
        assert not pace.is_due(latest_s - 0.002, 0.001, lambda: 0.0)
        assert pace.is_due(latest_s, 0.001, lambda: 0.0)


def test_ways_that_vary_are_allowed_for() -> None:
    """Candidates that are late are of use a pass later only, early ones have grown a little less: they go out before the mean way would ask for it."""
    pace = TargetPace(0.0)
    target = TargetActivity(pass_s=0.010, free_s=0.020, wait_s=0.0, floor=0.0)
    for index in range(200):
        now = 1.0 + index
        pace.told(
            target, 1, now, num_sessions=1, echo_us=clock_us(now - (0.002 if index % 2 else 0.006))
        )
    assert pace.is_due(200.0 + 0.020 - 0.0055, 0.001, lambda: 0.0)


def test_one_pause_is_no_long_way() -> None:
    """A process that stood still for ten seconds is not ten seconds away."""
    pace = _pace(trip_s=0.001)
    pace.told(_activity(), 1, 100.0, num_sessions=1, echo_us=clock_us(90.0))
    assert pace.passes_before == 0


@pytest.mark.parametrize("echo_us", [1, 1 << 31, (1 << 32) - 1])
def test_nonsense_of_a_target_ends_nothing(echo_us: int) -> None:
    """However often it is said; a clock that runs ahead is no way at all."""
    pace = TargetPace(0.0)
    for index in range(3000):
        pace.told(_activity(), 1, 1.0 + index, num_sessions=1, echo_us=echo_us)
    assert pace.passes_before >= 0
    assert 0.0 < pace.fetch_cost <= 1.0
    assert pace.is_due(1e6, 0.001, lambda: 0.0)
