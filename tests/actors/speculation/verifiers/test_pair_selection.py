"""The importance step against the linear program that it replaces."""

from __future__ import annotations

import numpy as np
import pytest

from bench.verifiers.optimum import best_acceptance, best_acceptance_identical, candidate_law
from bench.verifiers.rates import canonical_rate
from outrider.actors.speculation.verify.pair_selection import best_share, divide, select_pair


@pytest.mark.parametrize("seed", range(12))
def test_different_drafts_reach_the_optimum(seed: int) -> None:
    """Two drafters, a block of all tokens: the winner's overlap with the target is the program's value."""
    rng = np.random.default_rng(seed)
    target, first, second = rng.dirichlet(np.full(5, 0.7), 3)
    law = select_pair(target, first, second, block=5).law_G
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
    assert law == pytest.approx(selection.law_G, abs=1e-15)
    assert law.sum() == pytest.approx(1.0)


def test_larger_blocks_lose_less_to_the_optimum() -> None:
    """Random rows of six tokens: the program makes up for what the orders lose, .002 at most in the mean."""
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet(np.full(6, 0.5), 2) for _ in range(200)]
    losses = [
        np.mean(
            [best_acceptance_identical(t, d, 2) - canonical_rate(t, d, 2, block) for t, d in rows]
        )
        for block in (2, 3, 4, 5, 6)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[0] < 0.002
    assert losses[-1] < 1e-12


def test_divide_gives_everything_where_nothing_is_wanted() -> None:
    """All mass goes somewhere, even if no token can use it."""
    mass = np.array([[0.0, 0.4], [0.4, 0.0]])
    won = divide(mass, np.zeros(2))
    assert won + won.T == pytest.approx(mass)


def test_divide_leaves_a_token_what_it_can_use() -> None:
    """However much the other wants."""
    won = divide(np.array([[0.0, 0.5], [0.5, 0.0]]), np.array([0.4, 0.5]))
    assert won.sum(axis=1) == pytest.approx([0.4, 0.1])


def test_divide_moves_mass_through_others() -> None:
    """Token 0 cannot give to 2 directly, but through 1."""
    mass = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.0]])
    won = divide(mass, np.array([0.0, 0.5, 0.5]))
    assert won.sum(axis=1) == pytest.approx([0.0, 0.5, 0.5])


@pytest.mark.parametrize("seed", range(8))
def test_divide_never_takes_more_than_there_is(seed: int) -> None:
    """Each pair's mass goes to its two tokens, and as much is of use as the least cut of that flow allows."""
    rng = np.random.default_rng(seed)
    mass = np.triu(rng.random((5, 5)) * (rng.random((5, 5)) < 0.7), 1)
    mass += mass.T
    wanted = rng.dirichlet(np.ones(5)) * mass.sum() / 2
    won = divide(mass, wanted)
    assert won.min() >= 0.0
    assert won + won.T == pytest.approx(mass)
    groups = [[i for i in range(5) if chosen >> i & 1] for chosen in range(32)]
    best = min(
        wanted[group].sum() + (mass.sum() - mass[np.ix_(group, group)].sum()) / 2.0
        for group in groups
    )
    assert float(np.minimum(won.sum(axis=1), wanted).sum()) == pytest.approx(best, abs=1e-12)
    # None gives what it can use itself, and none takes more than it can use.
    began = np.triu(mass).sum(axis=1)
    assert (won.sum(axis=1) >= np.minimum(began, wanted) - 1e-12).all()
    assert (won.sum(axis=1) <= np.maximum(began, wanted) + 1e-12).all()


@pytest.mark.parametrize("seed", range(20))
def test_the_best_share_is_the_best(seed: int) -> None:
    """Against a fine grid of mixtures."""
    rng = np.random.default_rng(seed)
    target, law, other = rng.dirichlet(np.full(8, 0.5), 3)
    best = best_share(target, law, other)
    overlaps = [
        float(np.minimum(target, law + share * (other - law)).sum())
        for share in (best, *np.linspace(0.0, 1.0, 501))
    ]
    assert overlaps[0] >= max(overlaps) - 1e-12
    assert best_share(target, target, other) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_the_best_share_is_the_best_where_tokens_are_as_wanted_already(seed: int) -> None:
    """Half of them: any change of these costs at once, or is of no use."""
    rng = np.random.default_rng(seed)
    target, law, other = rng.dirichlet(np.full(8, 0.5), 3)
    law[:4] = target[:4]
    law[4:] *= target[4:].sum() / law[4:].sum()
    other[0] = law[0]
    best = best_share(target, law, other)
    overlaps = [
        float(np.minimum(target, law + share * (other - law)).sum())
        for share in (best, *np.linspace(0.0, 1.0, 501))
    ]
    assert overlaps[0] >= max(overlaps) - 1e-12


def test_of_equally_good_shares_the_least_is_taken() -> None:
    """Nothing changes without need."""
    law = np.array([0.25, 0.5, 0.25])
    assert best_share(law, law, law) == best_share(np.array([0.5, 0.25, 0.25]), law, law) == 0.0
    # Between the first token's turn, at 1/4, and the second's, at 3/4, nothing is won or lost.
    assert best_share(np.array([0.375, 0.125, 0.5]), law, np.array([0.75, 0.0, 0.25])) == 0.25
    target = np.array([0.75, 0.125, 0.125])
    assert best_share(target, law, target) == 1.0


def test_equal_tokens_are_ordered_by_id() -> None:
    """So that every machine chooses alike, whichever way its sort takes."""
    target = np.tile([0.5, 1.5], 50) / 100.0
    selection = select_pair(target, np.full(100, 0.01), np.full(100, 0.01), block=20)
    _, rule = selection.rules[0]
    order = [*range(1, 100, 2), *range(0, 100, 2)]
    assert np.argsort(rule.ranks_G).tolist() == order
    assert rule.block_B.tolist() == order[:20]


def test_the_least_probabilities_are_no_exception() -> None:
    """A ratio beyond the greatest number is a great ratio."""
    target, draft = np.array([0.5, 0.5, 0.0]), np.array([5e-324, 0.5, 0.5])
    law = select_pair(target, draft, draft).law_G
    assert law == pytest.approx([0.0, 0.75, 0.25])


@pytest.mark.parametrize("seed", range(4))
def test_each_step_is_the_order_of_what_is_proposed(seed: int) -> None:
    """First by target over both laws, then over the law of the winner so far; what each step adds is mixed in as it is best."""
    rng = np.random.default_rng(seed)
    target, first, second = rng.dirichlet(np.full(7, 3.0), 3)
    selection = select_pair(target, first, second, block=1)
    law, kept, gained = first, np.ones(7), np.zeros(7)
    for number, (_, rule) in enumerate(selection.rules):
        proposed = first + second if number == 0 else law
        assert np.argsort(rule.ranks_G).tolist() == np.argsort(-target / proposed).tolist()
        share = best_share(target, law, rule.law_G)
        law = law + share * (rule.law_G - law)
        wins = np.array([[rule.first_wins(i, j) for j in range(7)] for i in range(7)])
        assert wins.diagonal().tolist() == [1.0] * 7
        kept = kept + share * (wins @ second - kept)
        gained = gained + share * (first @ (1.0 - wins) - gained)
    assert len(selection.rules) > 1
    assert selection.law_G == pytest.approx(law, abs=1e-15)
    assert selection.kept_G == pytest.approx(kept, abs=1e-15)
    assert selection.gained_G == pytest.approx(gained, abs=1e-15)


def test_the_program_is_among_the_tokens_that_are_wanted_most() -> None:
    """Those with the greatest target - law 1 * law 2 of all that are proposed, or of those that are single."""
    rng = np.random.default_rng(5)
    target, draft = rng.dirichlet(np.ones(9)), rng.dirichlet(np.full(9, 0.3))
    wanted = np.argsort(-(target - draft * draft)).tolist()
    _, rule = select_pair(target, draft, draft, block=4).rules[0]
    assert rule.block_B.tolist() == wanted[:4]
    singles = np.array([1, 3, 8])
    _, rule = select_pair(target, draft, draft, block=4, singles=singles).rules[0]
    assert rule.block_B.tolist() == [token for token in wanted if token in singles]


def test_nothing_is_mixed_in_where_nothing_is_gained() -> None:
    """The first candidate's law is the target's already."""
    rng = np.random.default_rng(6)
    target, second = rng.dirichlet(np.ones(5), 2)
    assert select_pair(target, target, second).rules == []
