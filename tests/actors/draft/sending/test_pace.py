"""What a drafter knows of the passes that end before its candidates arrive."""

from __future__ import annotations

import pytest

from outrider.actors.draft.sending.pace import TargetPace
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
