"""The closed form and the linear program agree, and both give the known values."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest

from bench.verifiers.optimum import (
    best_acceptance,
    best_acceptance_distinct,
    best_acceptance_identical,
    best_acceptances_distinct,
    candidate_law,
)

TARGET, DRAFT = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_closed_form_is_the_program(k: int, seed: int) -> None:
    """For independent candidates of one draft."""
    target, draft = np.random.default_rng(seed).dirichlet(np.full(4, 0.7), 2)
    best = best_acceptance(target, candidate_law([draft] * k))
    assert best == pytest.approx(best_acceptance_identical(target, draft, k), abs=1e-7)


@pytest.mark.parametrize(("k", "best"), [(2, 0.8345238), (3, 1.0)])
def test_without_replacement(k: int, best: float) -> None:
    """The running example."""
    law = candidate_law([DRAFT] * k, is_with_replacement=False)
    assert best == pytest.approx(best_acceptance(TARGET, law), abs=1e-6)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("is_with_replacement", [True, False])
def test_program_is_the_least_cut(k: int, is_with_replacement: bool) -> None:
    """The least of target(S) + 1 - Pr(all candidates in S), over all sets."""
    target, draft = np.random.default_rng(k).dirichlet(np.ones(4), 2)
    law = candidate_law([draft] * k, is_with_replacement=is_with_replacement)
    assert sum(law.values()) == pytest.approx(1.0)
    sets = chain.from_iterable(combinations(range(4), size) for size in range(5))
    cuts = [
        target[list(s)].sum() + 1.0 - sum(c for tokens, c in law.items() if tokens <= set(s))
        for s in sets
    ]
    assert min(cuts) == pytest.approx(best_acceptance(target, law), abs=1e-7)


def test_candidates_that_the_draft_never_makes() -> None:
    """Tokens outside the draft cannot be accepted; one candidate reaches the common mass."""
    target, draft = np.array([0.5, 0.3, 0.2]), np.array([0.0, 0.9, 0.1])
    assert best_acceptance_identical(target, draft, 1) == pytest.approx(0.4)
    assert best_acceptance_identical(target, draft, 50) == pytest.approx(0.5)


@pytest.mark.parametrize(("vocab", "k"), [(4, 1), (4, 2), (4, 3), (6, 2), (6, 3), (9, 2)])
@pytest.mark.parametrize("seed", range(6))
def test_distinct_candidates_reach_the_least_cut_of_prefixes(vocab: int, k: int, seed: int) -> None:
    """The program's value, also for very uneven rows and rows with zeros."""
    rng = np.random.default_rng(seed)
    target, draft = rng.dirichlet(np.full(vocab, rng.choice([0.2, 1.0, 3.0])), 2)
    if vocab > k + 1:
        draft[seed % vocab] = 0.0
        draft /= draft.sum()
    law = candidate_law([draft] * k, is_with_replacement=False)
    best = best_acceptance_distinct(target, draft, k)
    assert best == pytest.approx(best_acceptance(target, law), abs=2e-6)


def test_distinct_candidates_of_the_running_example() -> None:
    """All counts at once; more candidates than tokens accept whatever the draft can propose."""
    assert best_acceptances_distinct(TARGET, DRAFT, 3) == pytest.approx(
        (0.6, 0.8345238, 1.0), abs=1e-6
    )
    assert best_acceptance_distinct(TARGET, np.array([0.0, 0.5, 0.5, 0.0]), 3) == pytest.approx(0.5)
