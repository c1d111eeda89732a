"""Every verifier keeps the target's joint law, for every way of growing a tree that it allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.actors.speculation.trees.branches import (
    Draft,
    Grow,
    Growing,
    committed,
    deep_models,
    distance,
    draft_of,
    drafts,
    every_outcome,
    joint_law,
    prefixes,
    random_models,
    static,
)
from tests.actors.speculation.verifiers.checks import EXACT, VISIBLE, check_of, error

from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.verifiers import kseq
from outrider.actors.speculation.verifiers.canonical import canonical
from outrider.actors.speculation.verify import pair_selection, tournament
from outrider.actors.speculation.verify.acceptance import Acceptance
from outrider.actors.speculation.verify.verifier_spec import TreeGrowth

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which computes each answer once: it depends on its arguments only."""
    known: dict[tuple[object, ...], Any] = {}

    def answer(*args: Any) -> Any:
        key = tuple(one.tobytes() if isinstance(one, np.ndarray) else one for one in args)
        if key not in known:
            known[key] = function(*args)
        return known[key]

    return answer


@pytest.fixture(autouse=True, scope="module")
def _steps_are_solved_once() -> Iterator[None]:
    """All branches of a tree, and many trees, ask for the same scales and programs of the same few rows."""
    with (
        patch.object(kseq, "best_scale", remembered(kseq.best_scale)),
        patch.object(tournament, "select_pair", remembered(pair_selection.select_pair)),
    ):
        yield


def by_entropy(growing: Growing) -> None:
    """As many children as the entropy of the row suggests: the shape depends on prefixes only."""
    level = [-1]
    for _ in range(2):
        following: list[int] = []
        for node in level:
            row = growing.row(node)
            possible = row[row > 0.0]
            entropy = float(-(possible * np.log(possible)).sum()) / np.log(3)
            following += growing.draw_children(node, 1 if entropy < 0.75 else 2)
        level = following


def best_first(growing: Growing) -> None:
    """Four draws, each at the slot with the greatest path probability times mass not yet drawn there."""
    value = {-1: 1.0}
    for _ in range(4):
        slots: list[tuple[float, int]] = []
        contexts = prefixes(growing.tokens, growing.parents)
        for node, worth in value.items():
            taken = [growing.tokens[child] for child in growing.children(node)]
            left = 1.0 - float(growing.row(node)[list(set(taken))].sum())
            if len(contexts[node + 1]) < 2 and left > 1e-9:
                slots.append((worth * left, node))
        _, node = max(slots)
        probability = growing.row(node)
        child = growing.draw_child(node)
        if child is not None:
            value[child] = value[node] * float(probability[growing.tokens[child]])


def only_below_the_likeliest(growing: Growing) -> None:
    """Two siblings, and children only below the one that the draft finds likelier."""
    row = growing.row(-1)
    children = growing.draw_children(-1, 2)
    growing.draw_children(max(children, key=lambda child: row[growing.tokens[child]]), 2)


def until_likely(growing: Growing) -> None:
    """Siblings are drawn until one is likely; it stays."""
    for node in (-1, 0):
        row = growing.row(node)
        for _ in range(2):
            child = growing.draw_child(node)
            if child is None or row[growing.tokens[child]] > 0.4:
                break


def until_unlikely(growing: Growing) -> None:
    """A chain that ends after a token that the draft found unlikely; it stays."""
    node = -1
    for _ in range(2):
        probability = growing.row(node)
        (node,) = growing.draw_children(node, 1)
        if probability[growing.tokens[node]] < 0.3:
            break


def until_unsure(growing: Growing) -> None:
    """A chain that ends before a token is drawn where the draft's row is flat."""
    node = -1
    for _ in range(2):
        if growing.row(node).max() < 0.55:
            break
        (node,) = growing.draw_children(node, 1)


def below_the_first_for_the_second(growing: Growing) -> None:
    """Two siblings; the first one gets children if the second is token 0."""
    children = growing.draw_children(-1, 2)
    if growing.tokens[children[-1]] == 0:
        growing.draw_children(children[0], 2)


STATIC: dict[str, Grow] = {
    "no tree": static(),
    "chain": static(1, 1),
    "one level": static(3),
    "2,2": static(2, 2),
    "paths": static(2, 1),
    "1,2": static(1, 2),
}
PREFIX: dict[str, Grow] = {
    "by entropy": by_entropy,
    "only below the likeliest": only_below_the_likeliest,
    "below the first for the second": below_the_first_for_the_second,
}
ADAPTIVE: dict[str, Grow] = {"best first": best_first, "until likely": until_likely}
DEEP: dict[str, Grow] = {
    "1,1,1": static(1, 1, 1),
    "2,1,1": static(2, 1, 1),
    "1,2,2": static(1, 2, 2),
}
"""Three deep, as the default trees: nodes with children below the second level, and three tokens in a row."""
CHAINS: dict[str, Grow] = {
    "no tree": static(),
    "chain": static(1, 1),
    "until unlikely": until_unlikely,
    "until unsure": until_unsure,
}


def allowed() -> list[tuple[str, Replacement, str, Grow]]:
    """Every verifier with every mode and growth that its registry entry allows."""
    cases: list[tuple[str, Replacement, str, Grow]] = []
    for verifier, method in VERIFIERS.items():
        if method.shares_noise or not method.is_lossless:
            continue  # draws that are noise, not decisions: test_coupled.py; lossy ones below
        shapes = dict(CHAINS) if method.is_chain_only else STATIC | PREFIX
        if not method.is_chain_only and method.growth is not TreeGrowth.PREFIX:
            shapes |= ADAPTIVE
        for replacement in sorted(method.replacements):
            cases += [(verifier, replacement, name, grow) for name, grow in shapes.items()]
    return cases


@pytest.mark.parametrize(("verifier", "replacement", "name", "grow"), allowed())
def test_output_has_the_law_of_the_target(
    verifier: str, replacement: Replacement, name: str, grow: Grow
) -> None:
    """The joint law of three tokens, over every tree and every branch."""
    assert error(verifier, grow, replacement, random_models(sum(map(ord, name)))) < EXACT


@pytest.mark.parametrize("verifier", [n for n, one in VERIFIERS.items() if not one.is_lossless])
def test_what_is_called_lossy_is_lossy(verifier: str) -> None:
    """Another law for a chain, which every verifier takes; so none is called lossy, or lossless, by mistake."""
    (replacement, *_) = sorted(VERIFIERS[verifier].replacements)
    assert error(verifier, STATIC["chain"], replacement, random_models(1)) > VISIBLE


def deep() -> list[tuple[str, Replacement, str]]:
    """Every verifier with every mode, for the shapes of depth three that it takes."""
    return [
        (verifier, replacement, name)
        for verifier, method in VERIFIERS.items()
        if not method.shares_noise and method.is_lossless
        for replacement in sorted(method.replacements)
        for name in DEEP
        if name == "1,1,1" or not method.is_chain_only
    ]


@pytest.mark.parametrize(("verifier", "replacement", "name"), deep())
def test_trees_of_depth_three_keep_the_law(
    verifier: str, replacement: Replacement, name: str
) -> None:
    """The joint law of four tokens of two."""
    for seed in range(3):
        assert error(verifier, DEEP[name], replacement, deep_models(seed)) < EXACT


@pytest.mark.parametrize("verifier", ["specinfer", "kseq", "canonical"])
def test_methods_for_independent_siblings_refuse_adaptive_growth_for_a_reason(
    verifier: str,
) -> None:
    """If drawing stops because of what was drawn, siblings are not independent, and these methods are off."""
    assert (
        max(error(verifier, until_likely, WITH, random_models(seed)) for seed in range(4)) > VISIBLE
    )


def two_drafters(models_1: Growing, models_2: Growing) -> Draft:
    """A path of two from each of two drafters, side by side; each path follows its own drafter throughout."""
    for growing in (models_1, models_2):
        growing.draw_children(-1, 1)
        growing.draw_children(0, 1)
    tokens = (models_1.tokens[0], models_2.tokens[0], models_1.tokens[1], models_2.tokens[1])
    tree = DraftTree(tokens_N=tokens, parents_N=(-1, -1, 0, 1), sources_N=(0, 1, 2, 3))
    return Draft(tree, ((), (), tokens[:1], tokens[1:2]))


@pytest.mark.parametrize(
    ("verifier", "order", "is_exact"),
    [
        ("specinfer", (0, 1, 2, 3), True),
        ("specinfer", (1, 0, 2, 3), False),
        ("specinfer", (0, 0, 2, 3), False),
        ("canonical", (0, 1, 2, 3), True),
        # Both rows enter the choice between two candidates alike: swapped, they say the same.
        ("canonical", (1, 0, 2, 3), True),
        ("canonical", (0, 0, 2, 3), False),
    ],
)
def test_drafters_may_differ_if_each_is_tested_with_its_own_rows(
    verifier: str, order: tuple[int, ...], is_exact: bool
) -> None:
    """Two drafters with paths of their own; mixed-up rows are caught."""
    models, other = random_models(5), random_models(6)
    law: dict[Draft, float] = {}
    for draft, chance in every_outcome(
        lambda d: two_drafters(Growing(models, WITH, d), Growing(other, WITH, d))
    ):
        law[draft] = law.get(draft, 0.0) + chance
    owners = (models, other, models, other)

    def rows(_: object, draft: Draft) -> list[Float64s]:
        own = [o.draft[c].dense(3) for o, c in zip(owners, draft.contexts, strict=True)]
        return [own[index] for index in order]

    outcomes = committed(models, list(law.items()), check_of(verifier), rows)
    off = distance(joint_law(models, outcomes), models.truth)
    assert off < EXACT if is_exact else off > VISIBLE


def three_and_a_child(growing: Growing) -> None:
    """Three siblings, and a child below the second."""
    growing.draw_child(growing.draw_children(-1, 3)[1])


@pytest.mark.parametrize("block", [1, 2, 3])
def test_canonical_is_exact_for_every_block_size(block: int) -> None:
    """Optimality of the program changes how much is accepted, not what comes out."""
    models = random_models(block)

    def check(
        tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
    ) -> Acceptance:
        return canonical(
            tree=tree,
            target_probs_NV=target,
            draft_probs_RV=draft,
            decisions=decisions,
            block=block,
        )

    outcomes = committed(models, drafts(models, three_and_a_child, WITH), check)
    assert distance(joint_law(models, outcomes), models.truth) < EXACT


def first_of_each(growing: Growing) -> Draft:
    """Independent siblings with equal ones merged at their first occurrence."""
    return merged(growing, WITHOUT)


def merged(growing: Growing, replacement: Replacement) -> Draft:
    """Only for one level: keep the first of equal siblings."""
    tokens = list(dict.fromkeys(growing.tokens))
    return draft_of(tokens, [-1] * len(tokens), replacement)


@pytest.mark.parametrize("verifier", ["mcsd_without_replacement", "traversal"])
def test_merged_siblings_are_siblings_without_replacement(verifier: str) -> None:
    """First occurrences of independent draws are ordered draws without replacement."""
    models = random_models(8)
    law = drafts(models, static(3), WITH, first_of_each)
    outcomes = committed(models, law, check_of(verifier))
    assert distance(joint_law(models, outcomes), models.truth) < EXACT
