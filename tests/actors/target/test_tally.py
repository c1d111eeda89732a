"""What a target counts: nothing that is told ever falls, and it is what the sessions' own statistics say."""

from __future__ import annotations

import threading

import pytest
from tests.actors.target.test_plan import session

from outrider.actors.speculation.pool import Node
from outrider.actors.target.tally import OWN, Tally, Totals


def node(drafter: int) -> Node:
    """A candidate."""
    return Node(5, 1, drafter, 0.5, 0.5)


def test_rounds_are_counted_by_drafter_and_position() -> None:
    """A tree of two drafters and the target itself; two of its nodes were drawn, one below the other."""
    tally = Tally()
    tally.decided(("a", "b"), [node(0), node(1), node(1), node(-1)], [0, 2])
    tally.decided(("a", "b"), [node(0)], [])

    verified = {name: one.verified for name, one in tally.drafters.items()}
    assert verified == {"a": 2, "b": 2, OWN: 1}
    positions = {name: one.accepted_by_position for name, one in tally.drafters.items()}
    assert positions == {"a": [1], "b": [0, 1], OWN: []}
    assert {name: one.accepted for name, one in tally.drafters.items()} == {"a": 1, "b": 1, OWN: 0}


@pytest.mark.parametrize(("rows", "label"), [(1, 1), (2, 2), (3, 4), (16, 16), (17, 32)])
def test_passes_are_sorted_by_rows(rows: int, label: int) -> None:
    """Rounded up to a power of two, so that there are few series."""
    tally = Tally()
    tally.passed(rows, 0.01, predicted_s=0.02, has_prompt=False)
    assert list(tally.passes) == [(False, label)]
    assert tally.errors.buckets[0] == ("0.5", 1.0)
    assert tally.busy_s == 0.01


def test_sums_never_fall_while_sessions_end() -> None:
    """A reader beside the worker's thread sees each session once: running or ended, never both or neither."""
    one = session(1)
    one.stats.tokens = 1
    tally, sessions = Tally(), dict.fromkeys(range(2_000), one)
    seen: list[int] = []

    def end_all() -> None:
        for number in range(2_000):
            with tally.lock:
                tally.end(one)
                del sessions[number]

    worker = threading.Thread(target=end_all)
    worker.start()
    while worker.is_alive():
        seen.append(tally.totals(sessions).tokens)
    worker.join()
    assert {*seen, tally.totals(sessions).tokens} == {2_000}
    assert tally.totals({}) == Totals(sessions=2_000, tokens=2_000)
