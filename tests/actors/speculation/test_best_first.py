"""Candidates of several pools in one order."""

from __future__ import annotations

import random
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.speculation.best_first import BestFirst
from outrider.actors.speculation.pool import CandidatePool

MAX_NODES, MAX_DEPTH = 8, 4


def grown(seed: int) -> CandidatePool:
    """A pool with a random tree, sometimes re-rooted; many of its values are equal."""
    rng = random.Random(seed)
    pool = CandidatePool(5, 100)
    count = rng.randrange(1, 20)
    pool.graft(
        [rng.randrange(30) for _ in range(count)],
        [rng.randint(0, place) for place in range(count)],
        [rng.choice((0.9, 0.5, 0.25, 1.0, 0.0)) for _ in range(count)],
        0,
        (),
        lambda stated: stated,
    )
    if rng.random() < 0.3:
        pool.graft([50, 51], [0, 1], [0.6, 0.5], 0, (), lambda stated: stated)
        pool.reroot([50])
    return pool


def search(pools: list[CandidatePool]) -> BestFirst:
    """Of all pools, by their place."""
    made = BestFirst()
    for place, pool in enumerate(pools):
        pool.offer(made, place, MAX_NODES, MAX_DEPTH)
    return made


@given(seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_the_order_of_all_is_that_of_each_merged(seeds: list[int]) -> None:
    """Together the pools give what each gives alone, in descending order."""
    pools = [grown(seed) for seed in seeds]
    alone = [pool.select(MAX_NODES, MAX_DEPTH) for pool in pools]
    both = search(pools)
    assert list(both.values()) == sorted((v for one in alone for v in one.values), reverse=True)
    taken = both.taken(-1.0, 10**6)
    assert [taken[place] for place in taken] == [one for one in alone if one.nodes]


@given(
    seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=6),
    asked=st.integers(1, 40),
    room=st.integers(0, 40),
)
def test_what_is_taken_is_a_leading_part_of_each(seeds: list[int], asked: int, room: int) -> None:
    """Down to the floor, as far as there is room, also if the search went on in vain; parents come before children."""
    pools = [grown(seed) for seed in seeds]
    alone = [pool.select(MAX_NODES, MAX_DEPTH) for pool in pools]
    both = search(pools)
    found = list(islice(both.values(), asked))
    floor = found[len(found) // 2]
    taken = both.taken(floor, room)
    assert list(taken) == sorted(taken)
    assert sum(len(one.nodes) for one in taken.values()) == min(
        room, sum(value >= floor for value in found)
    )
    for place, one in taken.items():
        count = len(one.nodes)
        assert one.values[-1] >= floor
        assert one.nodes == alone[place].nodes[:count]
        assert one.parents == alone[place].parents[:count]
        assert all(a >= b for a, b in pairwise(one.values))


def test_no_more_is_walked_than_asked_for() -> None:
    """A long chain of small worth is left alone while there is better."""
    rich, poor = CandidatePool(5, 100), CandidatePool(5, 100)
    rich.graft([1] * 9, list(range(9)), [0.9] * 9, 0, (), lambda stated: stated)
    poor.graft([1] * 9, list(range(9)), [0.1] * 9, 0, (), lambda stated: stated)
    both = search([poor, rich])
    assert list(islice(both.values(), 3)) == pytest.approx([0.9, 0.81, 0.729])
    assert {place: len(one.nodes) for place, one in both.taken(0.0, 9).items()} == {1: 3}
