"""More candidates are never accepted less often, and classes of tokens change nothing but how much is accepted."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.actors.speculation.trees.branches import random_models, static
from tests.actors.speculation.verifiers.checks import EXACT, error, mean_accepted

from bench.verifiers.optimum import best_acceptance_identical
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.trees.draft_tree import Replacement
from outrider.actors.speculation.verify import tournament
from outrider.actors.speculation.verify.pair_selection import PairSelection, select_pair
from outrider.actors.speculation.verify.tournament import Tournament

ROUNDING = 1e-12


@pytest.fixture(params=["a class a token", "classes of many tokens"])
def classes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for small vocabularies, and as for large ones: whole octaves are one class, likely tokens are alone."""
    if request.param == "classes of many tokens":
        monkeypatch.setattr(tournament, "MAX_SINGLE", 0)
        monkeypatch.setattr(tournament, "_LIKELY", 0.4)
        monkeypatch.setattr(tournament, "_DIGITS", 0)


def rising(target_V: Float64s, rows: dict[int, Float64s], entries: list[int]) -> list[float]:
    """The overlap with the target, computed from the law, after each candidate."""
    contest = Tournament(target_V, rows)
    found = [float(np.minimum(target_V, contest.law_V).sum())]
    for source in entries:
        contest.enter(source)
        assert contest.law_V.sum() == pytest.approx(1.0, abs=1e-12)
        assert contest.law_V.min() >= 0.0
        found.append(float(np.minimum(target_V, contest.law_V).sum()))
    return found


def rows_of(rng: np.random.Generator, size: int, count: int) -> list[Float64s]:
    """Rows from flat to peaked, some with zeros, the others drawn towards the first."""
    rows: list[Float64s] = []
    for number in range(count):
        row_V = rng.gamma(float(rng.choice([0.05, 0.3, 1.0, 5.0])), size=size) + 1e-300
        if rng.random() < 0.3:
            row_V[rng.random(size) < 0.5] = 0.0
        row_V[rng.integers(size)] += 1e-3
        row_V /= row_V.sum()
        share = rng.choice([0.0, 0.5, 0.9]) if number else 0.0
        rows.append(share * rows[0] + (1.0 - share) * row_V if number else row_V)
    return rows


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize("size", [2, 3, 5, 8, 40, 1000, 5000])
def test_acceptance_never_falls_with_more_candidates(size: int) -> None:
    """One drafter and two, exactly computed, over random pairs."""
    rng = np.random.default_rng(size)
    for _ in range(60 if size < 100 else 10):
        target_V, draft_V, other_V = rows_of(rng, size, 3)
        for rows, entries in (
            ({0: draft_V}, [0] * 7),
            ({0: draft_V, 1: other_V}, rng.integers(0, 2, 7).tolist()),
        ):
            found = rising(target_V, rows, entries)
            assert all(b >= a - ROUNDING for a, b in pairwise(found)), found


@pytest.mark.usefixtures("classes")
def test_the_whole_verifier_never_accepts_less_with_more_siblings() -> None:
    """Summed over all trees and decisions."""
    for seed in range(4):
        models = random_models(seed, depth=2)
        found = [
            mean_accepted("canonical", static(count), Replacement.WITH, models)
            for count in (1, 2, 3, 4)
        ]
        assert all(b >= a - ROUNDING for a, b in pairwise(found)), found


@pytest.mark.usefixtures("classes")
@pytest.mark.parametrize("shape", [(2,), (3,), (2, 1)])
def test_classes_keep_the_law(shape: tuple[int, ...]) -> None:
    """However tokens are grouped."""
    for seed in range(2):
        assert error("canonical", static(*shape), Replacement.WITH, random_models(seed)) < (EXACT)


@settings(max_examples=60, deadline=None)
@example(seed=0, size=6)
@given(seed=st.integers(0, 10**6), size=st.integers(2, 7))
def test_classes_keep_the_law_of_any_rows(seed: int, size: int) -> None:
    """Two drafters, three candidates: the law of the winner is what the choices give, summed over all candidates."""
    with pytest.MonkeyPatch.context() as patched:
        if seed % 2:
            patched.setattr(tournament, "MAX_SINGLE", 0)
            patched.setattr(tournament, "_LIKELY", 0.4)
            patched.setattr(tournament, "_DIGITS", seed // 2 % 3)
        target_V, first_V, second_V = rows_of(np.random.default_rng(seed), size, 3)
        contest = Tournament(target_V, {0: first_V, 1: second_V})
        law_V = first_V
        for source, row_V in ((1, second_V), (0, first_V)):
            found = contest.enter(source)
            after_V = np.zeros(size)
            for one, two in product(range(size), repeat=2):
                chance = law_V[one] * row_V[two]
                wins = 1.0 if one == two else contest.first_wins(found, one, two)
                after_V[one] += chance * wins
                after_V[two] += chance * (1.0 - wins)
            law_V = after_V
            assert law_V == pytest.approx(contest.law_V, abs=1e-15)


def test_acceptance_comes_near_the_optimum_at_a_large_vocabulary() -> None:
    """Two candidates and eight, flat rows and peaked ones."""
    rng = np.random.default_rng(3)
    for shape in (0.02, 0.3, 1.0):
        target_V, noise_V = (rng.gamma(shape, size=20_000) + 1e-300 for _ in range(2))
        target_V /= target_V.sum()
        draft_V = 0.4 * target_V + 0.6 * noise_V / noise_V.sum()
        found = rising(target_V, {0: draft_V}, [0] * 7)
        for k, lost in ((2, 0.002), (8, 0.03)):
            assert found[k - 1] >= best_acceptance_identical(target_V, draft_V, k) - lost


def test_equal_rows_are_accepted_whole() -> None:
    """Also when most tokens share a class."""
    row_V = np.random.default_rng(1).gamma(0.2, size=3000)
    row_V /= row_V.sum()
    assert rising(row_V, {0: row_V}, [0] * 3) == pytest.approx([1.0] * 4)


def test_the_greatest_number_of_single_tokens_has_no_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to it the choice is as good as token by token; beyond, unlike tokens are treated alike."""
    target_V, draft_V, _ = rows_of(np.random.default_rng(7), 30, 3)
    draft_V = 0.5 * draft_V + 0.5 / 30
    monkeypatch.setattr(tournament, "_LIKELY", 2.0)
    monkeypatch.setattr(tournament, "_DIGITS", 0)
    found = []
    for limit in (500, 30, 29):
        monkeypatch.setattr(tournament, "MAX_SINGLE", limit)
        found.append(rising(target_V, {0: draft_V}, [0])[-1])
    assert found[0] == found[1] > found[2]


@pytest.mark.parametrize("limit", [0, 512])
def test_the_least_probabilities_have_a_class(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ratio beyond the greatest number is no error."""
    monkeypatch.setattr(tournament, "MAX_SINGLE", limit)
    target_V = np.array([0.5, 0.5, 0.0, 0.0])
    draft_V = np.array([5e-324, 0.5, 0.5, 0.0])
    assert rising(target_V, {0: draft_V}, [0, 0])[0] == pytest.approx(0.5)


def test_tokens_that_are_not_proposed_change_nothing() -> None:
    """At a large vocabulary: they belong to no class of tokens that can win, however much the target wants them."""
    rng = np.random.default_rng(4)
    target_V, noise_V = (rng.gamma(0.3, size=4000) + 1e-300 for _ in range(2))
    draft_V = 0.2 * target_V / target_V.sum() + 0.8 * noise_V / noise_V.sum()
    draft_V[::2] = 0.0
    draft_V /= draft_V.sum()
    target_V /= target_V.sum()
    found = rising(target_V, {0: draft_V}, [0, 0])
    assert found[1] >= best_acceptance_identical(target_V, draft_V, 2) - 0.002


def test_a_choice_that_would_accept_less_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the first candidate wins, and law and overlap stay."""
    rng = np.random.default_rng(8)
    target_V, draft_V, other_V = (rng.dirichlet(np.ones(6)) for _ in range(3))
    contest = Tournament(target_V, {0: draft_V, 1: other_V})
    contest.enter(0)
    before_V, overlap = contest.law_V.copy(), contest.overlap

    def the_second_wins(
        target_G: Float64s, first_G: Float64s, second_G: Float64s, *others: object
    ) -> PairSelection:
        _, rule = select_pair(target_G, first_G, second_G).rules[0]
        worst_G = np.zeros_like(first_G)
        worst_G[target_G.argmin()] = 1.0
        return PairSelection(law_G=worst_G, kept_G=worst_G, gained_G=worst_G, rules=[(1.0, rule)])

    monkeypatch.setattr(tournament, "select_pair", the_second_wins)
    found = contest.enter(1)
    assert [contest.first_wins(found, one, 0) for one in range(1, 6)] == [1.0] * 5
    assert contest.law_V.tolist() == before_V.tolist()
    assert contest.overlap == overlap
