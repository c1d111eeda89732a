"""The order of ways by turns."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from bench.figures.turn import balanced, in_turn

WAYS = ("plain", "pipelined", "lockstep")


def test_every_run_holds_each_way_once() -> None:
    """In the order given first."""
    assert in_turn(WAYS, 0) == WAYS
    for run in range(5):
        assert sorted(in_turn(WAYS, run)) == sorted(WAYS)


def test_no_way_always_follows_the_same_other_one() -> None:
    """A fixed order, or one that only begins elsewhere each time, fails this."""

    def followed(order: list[str]) -> dict[str, set[str]]:
        return {way: {a for a, b in pairwise(order) if b == way} for way in WAYS}

    runs = range(6)
    found = followed([way for run in runs for way in in_turn(WAYS, run)])
    assert all(len(others) > 1 for others in found.values())
    fixed = followed([way for _ in runs for way in WAYS])
    assert all(len(others) == 1 for others in fixed.values())


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_each_way_follows_each_other_equally_often(count: int) -> None:
    """Within turns, over as many as it takes; and each has every place equally often."""
    ways = "abcdef"[:count]
    turns = [balanced(ways, turn) for turn in range(count * (1 + count % 2))]
    assert all(sorted(turn) == list(ways) for turn in turns)
    followed = Counter(pair for turn in turns for pair in pairwise(turn))
    assert len(followed) == count * (count - 1)
    assert len(set(followed.values())) == 1
    places = Counter((place, way) for turn in turns for place, way in enumerate(turn))
    assert len(places) == count * count
    assert len(set(places.values())) == 1
