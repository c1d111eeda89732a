"""Rules that need token ids only: exact for every tree, however it came about; and faulty ones, which are caught."""

from __future__ import annotations

import numpy as np
import pytest
from tests.actors.speculation.trees.branches import (
    Check,
    Draft,
    Grow,
    Growing,
    Models,
    all_trees,
    committed,
    distance,
    drafts,
    joint_law,
    random_models,
    static,
)
from tests.actors.speculation.verifiers.checks import EXACT, VISIBLE, check_of
from tests.actors.speculation.verifiers.test_exactness import best_first
from tests.actors.speculation.verifiers.token_only import FAULTY, one_hot

from outrider.actors.speculation.trees.draft_tree import Replacement

SEEDS = (0, 1, 2)


def off(models: Models, law: list[tuple[Draft, float]], check: Check) -> float:
    """Total variation between the output and the target."""
    return distance(joint_law(models, committed(models, law, check)), models.truth)


@pytest.mark.parametrize("check", [check_of("exact_match"), one_hot])
def test_every_tree_keeps_the_law(check: Check) -> None:
    """All 729 trees of distinct siblings over three tokens to depth 2, each by itself."""
    models = random_models(7)
    assert max(off(models, [(draft, 1.0)], check) for draft in all_trees()) < EXACT


def most_probable(growing: Growing) -> None:
    """The two most probable tokens at each node, chosen, not drawn."""
    level = [-1]
    for _ in range(2):
        following: list[int] = []
        for node in level:
            for token in np.argsort(-growing.row(node), kind="stable")[:2].tolist():
                growing.tokens.append(token)
                growing.parents.append(node)
                following.append(len(growing.tokens) - 1)
        level = following


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("grow", [static(2, 2), static(3, 1), best_first, most_probable])
def test_the_one_hot_rule_is_exact_for_distinct_siblings(grow: Grow, seed: int) -> None:
    """Drawn without replacement or chosen: the allowed way to test candidates that were not drawn."""
    models = random_models(seed)
    assert off(models, drafts(models, grow, Replacement.WITHOUT), one_hot) < EXACT


@pytest.mark.parametrize("check", FAULTY)
def test_faulty_rules_are_caught(check: Check) -> None:
    """On every one of the models."""
    for seed in SEEDS:
        models = random_models(seed)
        law = drafts(models, static(2, 1), Replacement.WITHOUT)
        assert off(models, law, check) > VISIBLE
