"""What a drafter knows of the passes that end before its candidates arrive."""

from __future__ import annotations

import pytest

from outrider.actors.draft.sending.pace import TargetPace
from outrider.actors.exchange.verdicts import TargetActivity


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
    pace.told(TargetActivity(pass_s=0.010, free_s=0.0, wait_s=wait_s, floor=0.0), 1, 1.0)
    assert pace.passes_before == passes
