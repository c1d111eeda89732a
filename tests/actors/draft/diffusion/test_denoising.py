"""Denoising steps and the tree of a block, as sums: no net."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

import pytest

from outrider.actors.draft.diffusion.block_tree import DenoisingStep, Place, best_tree
from outrider.actors.draft.diffusion.denoising import (
    DistanceRates,
    distances,
)


def test_tokens_count_from_what_their_step_knew() -> None:
    """As many steps as tokens are autoregressive."""
    assert distances(8, (0, 4)) == (0, 1, 2, 3, 0, 1, 2, 3)
    assert distances(4, (0, 1, 2, 3)) == (0, 0, 0, 0)
    assert distances(3, (0,)) == (0, 1, 2)


def outcomes(first: Sequence[float], among: Sequence[float], starts: Sequence[int]) -> float:
    """Tokens right in a row, token by token: it is the likeliest candidate, another candidate, or none."""

    def behind(token: int, start: int, *, is_told: bool) -> float:
        if token == len(among):
            return 0.0
        if is_told and token in starts:
            start = token
        distance = token - start
        likeliest, others = first[distance], among[distance] - first[distance]
        return (
            likeliest * (1.0 + behind(token + 1, start, is_told=is_told))
            # What a step was told is not so: what the steps before said stands.
            + others * (1.0 + behind(token + 1, start, is_told=False))
        )

    return behind(0, 0, is_told=True)


RATES = [
    ((0.7, 0.4, 0.2, 0.1, 0.1), (0.9, 0.5, 0.3, 0.2, 0.1)),
    ((0.6, 0.55, 0.5, 0.1, 0.1), (0.6, 0.59, 0.58, 0.2, 0.1)),
    ((0.1, 0.2, 0.3, 0.3, 0.0), (0.3, 0.8, 0.8, 0.8, 0.1)),
]


@pytest.mark.parametrize(("first", "among"), RATES)
def test_steps_begin_where_most_is_expected(
    first: tuple[float, ...], among: tuple[float, ...]
) -> None:
    """Of every choice of beginnings, for each number of steps; what is expected is the sum over all outcomes."""
    rates = DistanceRates(first, among)
    for steps, starts in enumerate(rates.best_starts(), start=1):
        every = [(0, *others) for others in combinations(range(1, 5), steps - 1)]
        for choice in every:
            expected = outcomes(first, among, choice)
            assert rates.expected_tokens(choice) == pytest.approx(expected)
        assert starts in every
        best = max(outcomes(first, among, choice) for choice in every)
        assert outcomes(first, among, starts) == pytest.approx(best)


def test_the_number_of_steps_follows_from_cost_and_rates() -> None:
    """Free steps: as many as bring anything. Dear ones, or ones that bring nothing: one. In between, in between."""
    falling = (0.9, 0.5, 0.3, 0.2, 0.15, 0.1, 0.1, 0.1)

    def steps_of(rates: tuple[float, ...], round_s: float, step_s: float) -> int:
        return len(DistanceRates(rates, rates).best_steps(round_s=round_s, step_s=step_s))

    assert steps_of(falling, 1.0, 0.0) == 8
    assert steps_of(falling, 0.01, 1.0) == 1
    assert steps_of((0.7,) * 8, 1.0, 1e-6) == 1
    assert steps_of(falling, 0.0, 1.0) == 1
    chosen = [steps_of(falling, 1.0, cost) for cost in (0.01, 0.1, 0.2, 0.5)]
    assert chosen == sorted(chosen, reverse=True)
    assert 1 < chosen[1] < 8


PLACES = (
    Place((5, 3), (0.6, 0.3), (1.0, -1.0), 0),
    Place((1, 2), (0.5, 0.4), (0.5, 0.2), 1),
    Place((7, 8), (0.9, 0.05), (0.1, 0.0), 2),
)


Values = dict[tuple[int, ...], float]


def values_of(most: int, *, least: float = 0.0, ends: tuple[int, ...] = ()) -> Values:
    """Value of each path of the best tree."""
    tree = best_tree([DenoisingStep((), PLACES)], deepest=3, least=least, most=most, ends=ends)
    paths: list[tuple[int, ...]] = [()]
    values = [1.0]
    for token, parent, estimate in zip(tree.tokens, tree.parents, tree.estimates, strict=True):
        paths.append((*paths[parent], token))
        values.append(values[parent] * estimate)
    return dict(zip(paths[1:], values[1:], strict=True))


def test_the_tree_is_the_product_of_its_places() -> None:
    """Every path when there is room for all, each with the product of its estimates."""
    expected = {}
    for depth in (1, 2, 3):
        for ranks in product((0, 1), repeat=depth):
            value = 1.0
            for place, rank in zip(PLACES, ranks, strict=False):
                value *= place.estimates[rank]
            path = tuple(place.tokens[rank] for place, rank in zip(PLACES, ranks, strict=False))
            expected[path] = value
    assert values_of(100) == pytest.approx(expected)


def test_the_best_nodes_get_children_first() -> None:
    """The best path first; none below the least value, and none behind the end of a text."""
    assert set(values_of(0)) == {(5,), (3,)}
    assert set(values_of(1)) == {(5,), (3,), (5, 1), (5, 2)}
    # Of two nodes worth the same the one that was there first.
    assert set(values_of(2)) - set(values_of(1)) == {(3, 1), (3, 2)}
    deep = values_of(100, least=0.29)
    assert {path[:-1] for path in deep} == {(), (5,), (3,), (5, 1)}
    ended = values_of(100, ends=(5,))
    assert (5,) in ended
    assert not any(path[0] == 5 and len(path) > 1 for path in ended)


def test_a_step_counts_below_the_path_that_it_was_told() -> None:
    """Elsewhere what the step before said stands."""
    further = DenoisingStep((5,), (Place((2, 9), (0.8, 0.1), (0.0, 0.0), 0), PLACES[2]))
    tree = best_tree([DenoisingStep((), PLACES), further], deepest=2, least=0.0, most=100)
    below: dict[int, dict[int, float]] = {}
    for token, parent, estimate in zip(tree.tokens, tree.parents, tree.estimates, strict=True):
        if parent:
            below.setdefault(tree.tokens[parent - 1], {})[token] = estimate
    assert below == {5: {2: 0.8, 9: 0.1}, 3: {1: 0.5, 2: 0.4}}
