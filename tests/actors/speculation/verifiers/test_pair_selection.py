"""The importance step against the linear program that it replaces."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.speculation.optimum import (
    best_acceptance,
    best_acceptance_identical,
    candidate_law,
)
from outrider.actors.speculation.rates import canonical_rate
from outrider.actors.speculation.verifiers.pair_selection import divide, select_pair


@pytest.mark.parametrize("seed", range(12))
def test_different_drafts_reach_the_optimum(seed: int) -> None:
    """Two drafters, a block of all tokens: the winner's overlap with the target is the program's value."""
    rng = np.random.default_rng(seed)
    target, first, second = rng.dirichlet(np.full(5, 0.7), 3)
    law = select_pair(target, first, second, block=5).law_V
    best = best_acceptance(target, candidate_law([first, second]))
    assert best == pytest.approx(float(np.minimum(target, law).sum()), abs=1e-9)


@pytest.mark.parametrize("block", [1, 2, 4, 6, 9])
def test_law_of_the_winner_is_what_the_choice_gives(block: int) -> None:
    """Summed over all pairs of candidates, for every block, even one larger than the vocabulary."""
    rng = np.random.default_rng(block)
    target, first, second = rng.dirichlet(np.ones(6), 3)
    first[5] = 0.0
    first /= first.sum()
    selection = select_pair(target, first, second, block)
    law = np.zeros(6)
    for i in range(6):
        for j in range(6):
            wins = 1.0 if i == j else selection.first_wins(i, j)
            law[i] += first[i] * second[j] * wins
            law[j] += first[i] * second[j] * (1.0 - wins)
    assert law == pytest.approx(selection.law_V, abs=1e-15)
    assert law.sum() == pytest.approx(1.0)


def test_larger_blocks_lose_less_to_the_optimum() -> None:
    """Random rows of six tokens: mean loss near the known .011, .008, .004, .001 for blocks of 2 to 5."""
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet(np.full(6, 0.5), 2) for _ in range(200)]
    losses = [
        np.mean(
            [best_acceptance_identical(t, d, 2) - canonical_rate(t, d, 2, block) for t, d in rows]
        )
        for block in (2, 3, 4, 5, 6)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses == pytest.approx([0.011, 0.008, 0.004, 0.001, 0.0], abs=0.003)


def test_divide_gives_everything_where_nothing_is_wanted() -> None:
    """All mass goes somewhere, even if no token can use it."""
    mass = np.array([[0.0, 0.4], [0.4, 0.0]])
    won = divide(mass, np.zeros(2))
    assert won + won.T == pytest.approx(mass)


def test_divide_moves_mass_through_others() -> None:
    """Token 0 cannot give to 2 directly, but through 1."""
    mass = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.0]])
    won = divide(mass, np.array([0.0, 0.5, 0.5]))
    assert won.sum(axis=1) == pytest.approx([0.0, 0.5, 0.5])
