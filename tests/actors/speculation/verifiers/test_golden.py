"""Published and independently computed values, reached by the verifiers themselves through enumeration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.actors.speculation.trees.branches import (
    Grow,
    accepted_tokens,
    committed,
    constant_models,
    drafts,
    every_outcome,
    static,
)
from tests.actors.speculation.verifiers.checks import mean_accepted

from bench.verifiers.optimum import best_acceptance_identical
from bench.verifiers.rates import (
    canonical_rate,
    coupled_rate,
    exact_match_rate,
    kseq_rate,
    recursive_rate,
)
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent
from outrider.actors.speculation.verifiers.block import keep_probability, path_weight
from outrider.actors.speculation.verifiers.canonical import canonical
from outrider.actors.speculation.verifiers.kseq import best_scale
from outrider.actors.speculation.verifiers.traversal import Standing, after_failure
from outrider.actors.speculation.verify.acceptance import Acceptance
from outrider.actors.speculation.verify.pair_selection import select_pair
from outrider.actors.speculation.verify.residual import ratio, residual, without

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT
SS, BLOCK, TRAVERSAL = "speculative_sampling", "block", "traversal"
TRAVERSAL_WITH = "traversal_with_replacement"
MCSD, MCSD_WO = "mcsd_with_replacement", "mcsd_without_replacement"
MATCH, INFER = "exact_match", "specinfer"
KSEQ, CANONICAL = "kseq", "canonical"

TARGET, DRAFT = (0.4, 0.3, 0.2, 0.1), (0.1, 0.2, 0.3, 0.4)
EXAMPLE = constant_models(TARGET, DRAFT)
THREE = constant_models((0.6, 0.3, 0.1), (0.2, 0.3, 0.5))
TWO = constant_models((1 / 3, 2 / 3), (2 / 3, 1 / 3))


@pytest.mark.parametrize(
    ("verifier", "replacement", "grow", "accepted"),
    [
        (MCSD, WITH, static(2), 0.72),
        (MCSD, WITH, static(3), 0.768),
        (INFER, WITH, static(2), 0.72),
        (INFER, WITH, static(3), 0.768),
        (MCSD_WO, WITHOUT, static(2), 0.7642857),
        (MCSD_WO, WITHOUT, static(3), 0.8402976),
        (MATCH, WITH, static(1), 0.20),
        (MATCH, WITH, static(2), 0.35),
        (MATCH, WITH, static(3), 0.4646),
        (MATCH, WITHOUT, static(2), 0.4194444),
        (MATCH, WITHOUT, static(3), 0.6734127),
        (KSEQ, WITH, static(2), 0.75),
        (CANONICAL, WITH, static(2), 0.79),
        (CANONICAL, WITH, static(3), 0.871),
        (SS, WITH, static(1), 0.6),
        (SS, WITH, static(1, 1), 0.96),
        (BLOCK, WITH, static(1, 1), 1.03),
        (TRAVERSAL, WITH, static(1, 1), 1.03),
        (MCSD, WITH, static(2, 2), 1.2384),
        (TRAVERSAL_WITH, WITH, static(2, 2), 1.2874),
        (MCSD_WO, WITHOUT, static(2, 1), 1.222857),
        (TRAVERSAL, WITHOUT, static(2, 1), 1.301429),
        (MCSD_WO, WITHOUT, static(2, 2), 1.348418),
        (TRAVERSAL, WITHOUT, static(2, 2), 1.398929),
    ],
)
def test_running_example(
    verifier: str, replacement: Replacement, grow: Grow, accepted: float
) -> None:
    """Expected accepted candidates with target .4 .3 .2 .1 and draft .1 .2 .3 .4 at every prefix."""
    value = mean_accepted(verifier, grow, replacement, EXAMPLE)
    assert accepted == pytest.approx(value, abs=6e-7)


@pytest.mark.parametrize(
    ("verifier", "grow", "accepted"),
    [
        (SS, static(1, 1), 10 / 9),
        (BLOCK, static(1, 1), 11 / 9),
        (TRAVERSAL, static(1, 1), 11 / 9),
        (MCSD, static(2, 2), 112 / 81),
        (TRAVERSAL_WITH, static(2, 2), 118 / 81),
    ],
)
def test_two_tokens(verifier: str, grow: Grow, accepted: float) -> None:
    """Sun et al.'s example: target 1/3 2/3, draft 2/3 1/3."""
    assert accepted == pytest.approx(mean_accepted(verifier, grow, WITH, TWO), abs=1e-12)


def test_three_tokens() -> None:
    """Target .6 .3 .1, draft .2 .3 .5, two candidates."""
    assert pytest.approx(0.68) == mean_accepted(MCSD, static(2), WITH, THREE)
    assert pytest.approx(0.76) == mean_accepted(MCSD_WO, static(2), WITHOUT, THREE)


@pytest.mark.parametrize(
    ("draft", "length", "tokens"), [((0.7, 0.3), 4, 3.3616), ((0.6, 0.4), 8, 6.12579511)]
)
def test_chain_length(draft: tuple[float, float], length: int, tokens: float) -> None:
    """Chen et al.: (1 - b^(K + 1)) / (1 - b) tokens a round, with b the acceptance of one."""
    models = constant_models((0.5, 0.5), draft, depth=length + 1)
    value = 1.0 + mean_accepted(SS, static(*[1] * length), WITH, models)
    assert tokens == pytest.approx(value, abs=1e-8)


def outcomes(
    verifier: str,
    tokens: tuple[int, ...],
    parents: tuple[int, ...],
    replacement: Replacement,
) -> dict[Acceptance, float]:
    """Law of the outcome for one tree of the running example."""
    tree = DraftTree(
        tokens_N=tokens,
        parents_N=parents,
        sources_N=sources_by_parent(parents),
        replacement=replacement,
    )
    rows = np.tile(TARGET, (len(tokens) + 1, 1))
    drafts = np.tile(DRAFT, (len(tokens), 1))
    law: dict[Acceptance, float] = {}
    for outcome, chance in every_outcome(
        lambda d: VERIFIERS[verifier].verify(
            tree=tree, target_probs_NV=rows, draft_probs_RV=drafts, decisions=d
        )
    ):
        law[outcome] = law.get(outcome, 0.0) + chance
    return law


def paths(law: dict[Acceptance, float]) -> dict[tuple[int, ...], float]:
    """Law of the accepted tokens."""
    result: dict[tuple[int, ...], float] = {}
    for outcome, chance in law.items():
        result[outcome.tokens[:-1]] = result.get(outcome.tokens[:-1], 0.0) + chance
    return {tokens: chance for tokens, chance in result.items() if chance > 1e-12}


def test_block_makes_good_for_an_unlikely_token() -> None:
    """The chain (3, 0): weight .25 after the first token, min(1, .25 * 4) = 1 after the second."""
    assert paths(outcomes(SS, (3, 0), (-1, 0), WITH))[3, 0] == pytest.approx(0.25)
    assert paths(outcomes(BLOCK, (3, 0), (-1, 0), WITH)) == pytest.approx({(3, 0): 1.0})


def test_traversal_of_a_small_tree() -> None:
    """Root with children 3 and 2, and 2 below 3: node 3 dies if its child does, then only token 0 is left."""
    tree = ((3, 2, 2), (-1, -1, 0), WITHOUT)
    top_down = paths(outcomes(MCSD_WO, *tree))
    assert top_down == pytest.approx({(3, 2): 1 / 6, (3,): 1 / 12, (): 3 / 4})
    law = outcomes(TRAVERSAL, *tree)
    assert paths(law) == pytest.approx({(3, 2): 1 / 6, (): 5 / 6})
    assert law[Acceptance(path=(), tokens=(0,))] == pytest.approx(5 / 6)


def test_trace_without_replacement() -> None:
    """Candidates 3, 2: 3 stays with .25; else 2 cannot, and token 0 comes."""
    law = outcomes(MCSD_WO, (3, 2), (-1, -1), WITHOUT)
    assert paths(law) == pytest.approx({(3,): 0.25, (): 0.75})
    assert law[Acceptance(path=(), tokens=(0,))] == pytest.approx(0.75)


def test_residual() -> None:
    """The running example leaves .75 .25 0 0."""
    row = residual(np.array(TARGET), np.array(DRAFT))
    assert row.tolist() == pytest.approx([0.75, 0.25, 0.0, 0.0])


def test_nothing_is_left_of_equal_rows() -> None:
    """Then the target's row itself stands in; a row that has been drawn empty stays empty."""
    row = np.array(TARGET)
    assert residual(row, row).tolist() == list(TARGET)
    assert without(np.array([0.0, 1.0]), 1).tolist() == [0.0, 0.0]
    assert without(np.array([0.5, 0.25, 0.25]), 0).tolist() == [0.0, 0.5, 0.5]


def test_what_the_draft_cannot_have_drawn_is_not_kept() -> None:
    """Whatever the target thinks of it."""
    assert ratio(0.5, 0.0) == ratio(0.0, 0.0) == path_weight(1.0, 0.5, 0.0) == 0.0
    assert (ratio(0.2, 0.4), ratio(0.4, 0.2), path_weight(0.5, 0.2, 0.4)) == (0.5, 1.0, 0.25)


def test_a_prefix_of_equal_rows_is_kept() -> None:
    """Its weight is 1 and nothing is left after it."""
    assert keep_probability(1.0, 0.0) == 1.0
    assert keep_probability(0.5, 0.5) == 0.5


def test_a_node_of_equal_rows_is_as_good_after_its_child_has_failed() -> None:
    """Nothing is left of its weight of 1 but rounding."""
    row = np.array(TARGET)
    left = after_failure(Standing(1.0, row, row), 3, WITH)
    assert (left.weight, left.target_V.tolist()) == (1.0, list(TARGET))


class Refusing:
    """The worst that rounding can do: a chance of 1 is missed. Draws the likeliest token."""

    def accept(self, probability: float) -> bool:
        """Never."""
        return False

    def draw(self, weights_V: Float64s) -> int:
        """The greatest weight; there is one."""
        assert weights_V.sum() > 0.0
        return int(weights_V.argmax())


@pytest.mark.parametrize("verifier", [name for name, spec in VERIFIERS.items() if spec.is_lossless])
def test_rounding_leaves_something_to_draw(verifier: str) -> None:
    """Equal rows, and yet a candidate is refused: the target's own row is drawn from."""
    tree = DraftTree(tokens_N=(3, 2), parents_N=(-1, 0), sources_N=(0, 1))
    outcome = VERIFIERS[verifier].verify(
        tree=tree,
        target_probs_NV=np.tile(TARGET, (3, 1)),
        draft_probs_RV=np.tile(TARGET, (2, 1)),
        decisions=Refusing(),
    )
    assert outcome == Acceptance(path=(), tokens=(0,))


@pytest.mark.parametrize("size", [2, 10, 60, 70, 3000])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_scale_of_kseq_is_the_least_valid_one(size: int, k: int) -> None:
    """Against a bisection that adds up whole rows at each trial."""
    rng = np.random.default_rng(size)
    for alpha in (0.05, 1.0, 20.0):
        target_V, draft_V = rng.dirichlet(np.full(size, alpha), 2)
        low, high = 1.0, float(k)
        for trial in [1.0] + [0.0] * 60:
            scale = trial or (low + high) / 2.0
            common = float(np.minimum(target_V / scale, draft_V).sum())
            if 1.0 - (1.0 - common) ** k <= scale * common + 1e-15:
                high = scale
            else:
                low = scale
        found = best_scale(target_V, draft_V, k)
        assert found.scale == pytest.approx(high, abs=1e-9)
        common = float(np.minimum(target_V / found.scale, draft_V).sum())
        assert found.common == pytest.approx(common, abs=1e-12)
        assert found.acceptance == pytest.approx(1.0 - (1.0 - common) ** k, abs=1e-12)


def test_of_equal_siblings_the_first_is_followed() -> None:
    """The second is there for a choice that does not matter."""
    tree = DraftTree(tokens_N=(3, 3), parents_N=(-1, -1), sources_N=(0, 0))
    for verifier in (CANONICAL, MATCH):
        law: dict[tuple[int, ...], float] = {}
        for outcome, chance in every_outcome(
            lambda d, verifier=verifier: VERIFIERS[verifier].verify(  # type: ignore[misc]
                tree=tree,
                target_probs_NV=np.tile(TARGET, (3, 1)),
                draft_probs_RV=np.tile(TARGET, (1, 1)),
                decisions=d,
            )
        ):
            law[outcome.path] = law.get(outcome.path, 0.0) + chance
        assert (1,) not in law, verifier


def test_a_residual_draw_goes_on_below_the_sibling_that_holds_it() -> None:
    """Three siblings of which the best does not always win: what comes after the loser's token is drawn as well."""
    target, draft = np.random.default_rng(56).dirichlet(np.full(4, 0.5), 2)
    tree = DraftTree(tokens_N=(0, 1, 2), parents_N=(-1, -1, -1), sources_N=(0, 0, 0))
    for outcome, _ in every_outcome(
        lambda d: VERIFIERS[CANONICAL].verify(
            tree=tree,
            target_probs_NV=np.tile(target, (4, 1)),
            draft_probs_RV=draft[None],
            decisions=d,
        )
    ):
        assert len(outcome.tokens) == (1 if outcome.tokens[0] == 3 else 2)


def test_kseq_scale() -> None:
    """Scale, acceptance of one and of all: SpecTr's rule on the running example."""
    target, draft = np.array(TARGET), np.array(DRAFT)
    two, three = best_scale(target, draft, 2), best_scale(target, draft, 3)
    assert (two.scale, two.common, two.acceptance) == pytest.approx((1.5, 0.5, 0.75))
    assert (three.scale, three.acceptance) == pytest.approx((1.9395, 0.79395), abs=5e-5)


@pytest.mark.parametrize(("k", "best"), [(2, 0.79), (3, 0.871), (4, 0.9439)])
def test_canonical_reaches_the_optimum(k: int, best: float) -> None:
    """On the running example the tournament is optimal for 2, 3 and 4 independent candidates."""
    target, draft = np.array(TARGET), np.array(DRAFT)
    assert best == pytest.approx(canonical_rate(target, draft, k), abs=1e-9)
    assert best == pytest.approx(best_acceptance_identical(target, draft, k), abs=1e-9)


def test_a_block_of_all_tokens_reaches_the_optimum_where_a_small_one_does_not() -> None:
    """By the verifier itself, with two siblings."""
    target, draft = np.random.default_rng(13).dirichlet(np.full(6, 0.5), 2)
    models = constant_models(target.tolist(), draft.tolist())
    accepted = []
    for block in (1, 6):

        def check(
            tree: DraftTree,
            target: Float64s,
            draft: Sequence[Float64s],
            decisions: Decisions,
            block: int = block,
        ) -> Acceptance:
            return canonical(
                tree=tree,
                target_probs_NV=target,
                draft_probs_RV=draft,
                decisions=decisions,
                block=block,
            )

        outcomes = committed(models, drafts(models, static(2), WITH), check)
        accepted.append(accepted_tokens(outcomes))
    assert accepted[1] == pytest.approx(best_acceptance_identical(target, draft, 2), abs=1e-9)
    assert accepted[0] < accepted[1] - 1e-6


def test_law_of_the_winner() -> None:
    """Its overlap with the target is the acceptance, as with the published winner's law."""
    target, draft = np.array(TARGET), np.array(DRAFT)
    law = select_pair(target, draft, draft).law_G
    assert law.sum() == pytest.approx(1.0)
    assert np.minimum(target, [0.19, 0.32, 0.33, 0.16]).sum() == pytest.approx(0.79)
    assert np.minimum(target, law).sum() == pytest.approx(0.79)


UNIFORM = [
    (1 / 3, 0.05, 0.9389, 0.8470, 0.8111),
    (1 / 3, 0.20, 1.0, 0.9449, 0.9111),
    (1 / 3, 1 / 3, 1.0, 1.0, 1.0),
    (1 / 3, 0.50, 1.0, 0.9248, 0.8889),
    (1 / 3, 0.60, 0.9556, 0.8587, 0.8222),
    (1 / 6, 0.05, 0.7722, 0.7248, 0.7000),
    (1 / 6, 0.20, 0.9222, 0.8353, 0.8000),
    (1 / 6, 1 / 3, 1.0, 0.9248, 0.8889),
    (1 / 6, 0.50, 1.0, 0.9248, 0.8889),
    (1 / 6, 0.60, 0.9556, 0.8587, 0.8222),
]


@pytest.mark.parametrize(("first", "second", "optimal", "kseq", "recursive"), UNIFORM)
def test_uniform_draft(
    first: float, second: float, optimal: float, kseq: float, recursive: float
) -> None:
    """Khisti et al.'s figure of a uniform draft over three tokens, two candidates."""
    target = np.array([first, second, 1.0 - first - second])
    draft = np.full(3, 1 / 3)
    assert optimal == pytest.approx(best_acceptance_identical(target, draft, 2), abs=6e-5)
    assert optimal == pytest.approx(canonical_rate(target, draft, 2), abs=6e-5)
    assert kseq == pytest.approx(kseq_rate(target, draft, 2), abs=6e-5)
    assert recursive == pytest.approx(recursive_rate(target, draft, 2), abs=6e-5)


def test_other_rates() -> None:
    """Closed forms of the running example."""
    target, draft = np.array(TARGET), np.array(DRAFT)
    assert coupled_rate(target, draft) == pytest.approx(0.542857, abs=1e-6)
    assert exact_match_rate(target, draft, 2) == pytest.approx(0.35)
    assert recursive_rate(target, draft, 3) == pytest.approx(0.768)
