"""What a target counts: nothing that is told ever falls, and it is what the sessions' own statistics say."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.actors.target.state.chaos import engine
from tests.actors.target.state.passing import Sessions

from outrider.actors.speculation.options import Sampling
from outrider.actors.target.state.tally import OWN, TargetTally, TargetTotals
from outrider.actors.target.state.target_events import SessionOwner


def test_rounds_are_counted_by_drafter_and_position() -> None:
    """A tree of two drafters and the target itself; two of its nodes were drawn, one below the other."""
    tally = TargetTally()
    tally.decided(
        ("a", "b"),
        np.array([0, 1, 1, -1]),
        np.array([1, 1, 2, 1]),
        np.array([True, False, True, False]),
    )
    tally.decided(("a", "b"), np.array([0]), np.array([1]), np.array([False]))

    verified = {name: one.verified for name, one in tally.drafters.items()}
    assert verified == {"a": 2, "b": 2, OWN: 1}
    positions = {name: one.accepted_by_position for name, one in tally.drafters.items()}
    assert positions == {"a": [1], "b": [0, 1], OWN: []}
    assert {name: one.accepted for name, one in tally.drafters.items()} == {"a": 1, "b": 1, OWN: 0}


@pytest.mark.parametrize(("rows", "label"), [(1, 1), (2, 2), (3, 4), (16, 16), (17, 32)])
def test_passes_are_sorted_by_rows(rows: int, label: int) -> None:
    """Rounded up to a power of two, so that there are few series."""
    tally = TargetTally()
    tally.passed(rows, 0.01, predicted_s=0.02, has_prompt=False)
    assert list(tally.passes) == [(False, label)]
    assert tally.errors.buckets[0] == ("0.5", 1.0)
    assert tally.busy_s == 0.01


def test_sums_never_fall_while_sessions_end() -> None:
    """A reader beside the worker's thread sees each session once: running or ended, never both or neither."""
    rounds, slots = 150, 4
    sessions = Sessions(engine(slots=slots))
    state, seen = sessions.state, list[tuple[int, int]]()

    def run_all() -> None:
        for number in range(rounds):
            rows = [sessions.open(Sampling(seed=1, max_tokens=9)) for _ in range(slots)]
            state.table.counts["tokens"][rows] += 1
            for place in range(slots):
                owner = SessionOwner(stream=1, session=slots * number + place + 1)
                state.abort(owner, is_told=True)

    worker = threading.Thread(target=run_all)
    worker.start()
    while worker.is_alive():
        totals = state.tally.totals(state.table)
        seen.append((totals.sessions, totals.tokens))
    worker.join()
    assert seen == sorted(seen)
    assert [tokens for _, tokens in seen] == sorted(tokens for _, tokens in seen)
    totals = state.tally.totals(state.table)
    assert totals == TargetTotals(sessions=rounds * slots, tokens=rounds * slots)
