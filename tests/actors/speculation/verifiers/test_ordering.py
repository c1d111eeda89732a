"""Who accepts how much: orderings that hold for all rows, equality at temperature 0, and degenerate rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.actors.speculation.trees.branches import (
    Models,
    committed,
    distance,
    drafts,
    every_outcome,
    joint_law,
    random_models,
    static,
)
from tests.actors.speculation.verifiers.checks import EXACT, check_of, mean_accepted

from bench.verifiers.optimum import best_acceptance, best_acceptance_identical, candidate_law
from bench.verifiers.rates import (
    canonical_rate,
    coupled_rate,
    exact_match_rate,
    kseq_rate,
    recursive_rate,
)
from outrider.actors.frozen.sparse_rows import SparseRow, freeze
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.sampling.random_acts import (
    Float64s,
    UniformDecisions,
    uniforms_needed,
)
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent
from outrider.actors.speculation.verifiers.coupled import CoupledDecisions
from outrider.actors.speculation.verify.acceptance import Acceptance

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT
SEEDS = range(6)
ROUNDING = 1e-9
METHOD_PAIRS = (
    (WITH, "mcsd_with_replacement", "traversal_with_replacement"),
    (WITHOUT, "mcsd_without_replacement", "traversal"),
)
"""The same trees, tested from the root and from the leaves."""

TESTED = [
    verifier
    for verifier, method in VERIFIERS.items()
    if not method.shares_noise and method.is_lossless
]


@st.composite
def rows(draw: st.DrawFn, size: int) -> Float64s:
    """A probability row; zeros and very small values happen."""
    weights = draw(
        st.lists(
            st.sampled_from([0.0, 1e-9, 0.1, 0.5, 1.0, 3.0]) | st.floats(0, 1),
            min_size=size,
            max_size=size,
        )
    )
    row = np.array(weights) + (np.arange(size) == draw(st.integers(0, size - 1))) * 0.25
    return np.asarray(row / row.sum())


@settings(max_examples=150, deadline=None)
@example(np.eye(5)[0], np.array([1e-310, 1.0, 0.0, 0.0, 0.0]), 2)
@given(rows(5), rows(5), st.integers(1, 4))
def test_no_method_accepts_more_than_the_optimum(target: Float64s, draft: Float64s, k: int) -> None:
    """Exact match <= recursive <= optimum; SpecTr's bound; the tournament between one candidate and the optimum."""
    optimum = best_acceptance_identical(target, draft, k) + ROUNDING
    single = recursive_rate(target, draft, 1) - ROUNDING
    recursive, kseq = recursive_rate(target, draft, k), kseq_rate(target, draft, k)
    assert exact_match_rate(target, draft, k) <= recursive + ROUNDING
    assert single <= recursive <= optimum
    assert (1.0 - (1.0 - 1.0 / k) ** k) * (optimum - 2 * ROUNDING) - ROUNDING <= kseq <= optimum
    assert single <= canonical_rate(target, draft, k) <= optimum
    assert coupled_rate(target, draft) <= recursive_rate(target, draft, 1) + ROUNDING


@settings(max_examples=60, deadline=None)
@given(rows(5), rows(5))
def test_canonical_with_two_candidates_is_optimal(target: Float64s, draft: Float64s) -> None:
    """If the block holds the whole vocabulary."""
    best = best_acceptance_identical(target, draft, 2)
    assert best == pytest.approx(canonical_rate(target, draft, 2, block=5), abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_match_recursive_optimum(seed: int) -> None:
    """At one node, measured on the verifiers themselves, for both ways of drawing."""
    models = random_models(seed)
    target, draft = models.target[()], models.draft[()].dense(3)
    for replacement, recursive, from_leaves in METHOD_PAIRS:
        law = candidate_law([draft, draft], is_with_replacement=replacement is WITH)
        optimum = best_acceptance(target, law)
        matched = mean_accepted("exact_match", static(2), replacement, models)
        tested = mean_accepted(recursive, static(2), replacement, models)
        traversed = mean_accepted(from_leaves, static(2), replacement, models)
        assert matched <= tested + ROUNDING
        assert tested <= optimum + ROUNDING
        assert tested == pytest.approx(traversed, abs=ROUNDING)


@pytest.mark.parametrize("seed", SEEDS)
def test_block_accepts_at_least_what_token_level_does(seed: int) -> None:
    """And traversal of a chain is block verification: same law of the outcome, not only of the length."""
    models = random_models(seed)
    law = drafts(models, static(1, 1), WITH)
    single, block, traversal = (
        committed(models, law, check_of(verifier))
        for verifier in (
            "speculative_sampling",
            "block",
            "traversal",
        )
    )

    def length(outcomes: Mapping[Acceptance, float]) -> float:
        return sum(len(outcome.path) * chance for outcome, chance in outcomes.items())

    assert length(block) >= length(single) - ROUNDING
    for outcome in {*block, *traversal}:
        assert block.get(outcome, 0.0) == pytest.approx(traversal.get(outcome, 0.0), abs=EXACT)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("replacement", "recursive", "from_leaves"), METHOD_PAIRS)
def test_traversal_accepts_at_least_what_top_down_does(
    seed: int, replacement: Replacement, recursive: str, from_leaves: str
) -> None:
    """On trees of two levels."""
    models = random_models(seed)
    top_down = mean_accepted(recursive, static(2, 1), replacement, models)
    traversed = mean_accepted(from_leaves, static(2, 1), replacement, models)
    assert traversed >= top_down - ROUNDING


def tree_of(verifier: str) -> DraftTree:
    """A chain or a tree, without equal siblings, all tokens possible."""
    chain = DraftTree(tokens_N=(1, 2), parents_N=(-1, 0), sources_N=(0, 1))
    if VERIFIERS[verifier].is_chain_only:
        return chain
    parents = (-1, -1, 0, 0, 1)
    return DraftTree(
        tokens_N=(1, 0, 0, 2, 2),
        parents_N=parents,
        sources_N=sources_by_parent(parents),
        replacement=min(VERIFIERS[verifier].replacements),
    )


@pytest.mark.parametrize("verifier", VERIFIERS)
@pytest.mark.parametrize("seed", SEEDS)
def test_all_agree_at_temperature_0(verifier: str, seed: int) -> None:
    """Whatever the uniforms: the longest path of argmaxes, then one more."""
    rng = np.random.default_rng(seed)
    tree = tree_of(verifier)
    best = rng.integers(0, 3, tree.num_nodes + 1).tolist()
    best[0] = (1, 1, 0)[seed % 3]
    target = np.eye(3)[best]
    path: list[int] = []
    node = -1
    while True:
        hits = [c for c in tree.children().get(node, []) if tree.tokens_N[c] == best[node + 1]]
        if not hits:
            break
        node = hits[0]
        path.append(node)
    draft = rng.dirichlet(np.ones(3), tree.num_nodes)
    decisions = UniformDecisions(rng.random(uniforms_needed(tree.num_nodes)))
    if VERIFIERS[verifier].shares_noise:
        outcome = VERIFIERS[verifier].verify(
            tree=tree, target_probs_NV=target, draft_probs_RV=None, decisions=CoupledDecisions(None)
        )
    else:
        outcome = VERIFIERS[verifier].verify(
            tree=tree, target_probs_NV=target, draft_probs_RV=draft, decisions=decisions
        )
    assert (outcome.path, outcome.token) == (tuple(path), best[node + 1])


def one_row(target: Float64s, draft: SparseRow) -> Models:
    """The same rows everywhere."""
    contexts = list(random_models(0).target)
    return Models(dict.fromkeys(contexts, target), dict.fromkeys(contexts, draft))


EVEN = np.array([0.5, 0.25, 0.25])
DEGENERATE = {
    "equal": (EVEN, EVEN),
    "disjoint": (np.array([0.0, 0.4, 0.6]), np.array([1.0, 0.0, 0.0])),
    "draft of one token": (EVEN, np.array([0.0, 1.0, 0.0])),
    "draft of two tokens": (EVEN, np.array([0.0, 0.25, 0.75])),
    "target of one token": (np.array([0.0, 1.0, 0.0]), EVEN),
    "both of one token": (np.array([0.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0])),
    "nearly equal": (EVEN + np.array([1e-17, 2e-17, -3e-17]), EVEN),
}


@pytest.mark.parametrize("verifier", TESTED)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_rows(verifier: str, name: str) -> None:
    """Equal rows accept all, disjoint ones nothing, more siblings than tokens are not drawn; the law always holds."""
    target, draft = DEGENERATE[name]
    models = one_row(target, freeze(draft))
    method = VERIFIERS[verifier]
    for shape in [(1, 1)] if method.is_chain_only else [(3,), (2, 1)]:
        law = drafts(models, static(*shape), min(method.replacements))
        outcomes = committed(models, law, check_of(verifier))
        assert distance(joint_law(models, outcomes), models.truth) < EXACT
        if name == "disjoint":
            assert all(not outcome.path for outcome in outcomes)
        if name == "equal" and verifier != "exact_match":
            assert all(len(outcome.path) == len(shape) for outcome in outcomes)


@settings(max_examples=40, deadline=None)
@example("kseq", np.eye(3)[0], np.array([1e-310, 1.0, 0.0]), (2,))
@given(st.sampled_from(TESTED), rows(3), rows(3), st.sampled_from([(1, 1), (2,), (3,), (2, 1)]))
def test_any_rows_keep_the_law(
    verifier: str, target: Float64s, draft: Float64s, shape: tuple[int, ...]
) -> None:
    """Rows with zeros, tiny values and ties, for every verifier."""
    method = VERIFIERS[verifier]
    if method.is_chain_only:
        shape = (1, 1)
    models = one_row(target, freeze(draft))
    law = drafts(models, static(*shape), max(method.replacements))
    outcomes = committed(models, law, check_of(verifier))
    assert distance(joint_law(models, outcomes), models.truth) < EXACT


@pytest.mark.parametrize("verifier", TESTED)
def test_no_tree_is_one_draw(verifier: str) -> None:
    """An empty tree: the target's own draw."""
    target = np.array([[0.2, 0.3, 0.5]])
    law = {
        outcome: chance
        for outcome, chance in every_outcome(
            lambda d: VERIFIERS[verifier].verify(
                tree=DraftTree(tokens_N=(), parents_N=()),
                target_probs_NV=target,
                draft_probs_RV=np.zeros((0, 3)),
                decisions=d,
            )
        )
    }
    assert {o.tokens: c for o, c in law.items()} == pytest.approx({(0,): 0.2, (1,): 0.3, (2,): 0.5})


@pytest.mark.parametrize("verifier", TESTED)
def test_no_tree_takes_one_uniform(verifier: str) -> None:
    """As many as are made for it: the one that draws the token."""
    outcome = VERIFIERS[verifier].verify(
        tree=DraftTree(tokens_N=(), parents_N=()),
        target_probs_NV=np.array([[0.2, 0.3, 0.5]]),
        draft_probs_RV=np.zeros((0, 3)),
        decisions=UniformDecisions([0.4] * uniforms_needed(0)),
    )
    assert (outcome.path, outcome.tokens) == ((), (1,))


@pytest.mark.parametrize("verifier", TESTED)
def test_nothing_is_written_to_and_equal_uniforms_give_equal_verdicts(
    verifier: str,
) -> None:
    """Pure: read-only arrays do, and a verdict can be made again."""
    rng = np.random.default_rng(3)
    tree = tree_of(verifier)
    target = rng.dirichlet(np.ones(3), tree.num_nodes + 1)
    draft = rng.dirichlet(np.ones(3), tree.num_nodes)
    target.flags.writeable = draft.flags.writeable = False
    for _ in range(50):
        uniforms = rng.random(uniforms_needed(tree.num_nodes))
        first, second = (
            VERIFIERS[verifier].verify(
                tree=tree,
                target_probs_NV=target,
                draft_probs_RV=draft,
                decisions=UniformDecisions(uniforms),
            )
            for _ in range(2)
        )
        assert first == second
