"""The enumeration itself: every outcome with its weight, every tree, and no mass lost on the way."""

from __future__ import annotations

import numpy as np
import pytest
from tests.actors.speculation.trees.branches import (
    all_trees,
    committed,
    distance,
    drafts,
    every_outcome,
    joint_law,
    random_models,
    static,
)
from tests.actors.speculation.verifiers.checks import check_of

from outrider.actors.speculation.sampling.random_acts import Decisions
from outrider.actors.speculation.trees.draft_tree import Replacement


def test_every_outcome_is_found_with_its_weight() -> None:
    """Two dice as it were, the second thrown only if the first shows 0; impossible outcomes never run."""

    def run(decisions: Decisions) -> tuple[int, ...]:
        first = decisions.draw(np.array([2.0, 0.0, 2.0]))
        return (first,) if first else (first, int(decisions.accept(0.25)))

    assert dict(every_outcome(run)) == {(0, 1): 0.125, (0, 0): 0.375, (2,): 0.5}


@pytest.mark.parametrize("probability", [-0.5, 0.0, 1.0, 1.5])
def test_certain_answers_do_not_branch(probability: float) -> None:
    """Chances outside [0, 1] count as the nearer bound, as they do when serving."""
    outcomes = list(every_outcome(lambda decisions: decisions.accept(probability)))
    assert outcomes == [(probability >= 1.0, 1.0)]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [0.5, -0.1], [np.nan, 1.0], [np.inf, 1.0]])
def test_what_is_no_law_is_refused(weights: list[float]) -> None:
    """A rule that draws from nonsense is told so, rather than weighted wrongly."""
    with pytest.raises(ValueError, match="cannot be drawn from"):
        list(every_outcome(lambda decisions: decisions.draw(np.array(weights))))
    with pytest.raises(ValueError, match="no chance"):
        list(every_outcome(lambda decisions: decisions.accept(float("nan"))))


def test_all_trees_are_all_trees() -> None:
    """(1 + 2^3)^3 different ones, the empty one among them."""
    trees = [draft.tree for draft in all_trees()]
    assert len(trees) == len({(tree.tokens_N, tree.parents_N) for tree in trees}) == 729
    assert any(not tree.num_nodes for tree in trees)


@pytest.mark.parametrize("replacement", list(Replacement))
@pytest.mark.parametrize("shape", [(), (1, 1), (2, 2), (3, 1)])
def test_nothing_is_lost(shape: tuple[int, ...], replacement: Replacement) -> None:
    """Trees, outcomes and continued texts have weight one; lost mass counts as distance."""
    models = random_models(3)
    law = drafts(models, static(*shape), replacement)
    outcomes = committed(models, law, check_of("exact_match"))
    whole = joint_law(models, outcomes)
    for weights in ([weight for _, weight in law], outcomes.values(), whole.values()):
        assert sum(weights) == pytest.approx(1.0, abs=1e-12)
    half = {tokens: weight for tokens, weight in whole.items() if tokens[0]}
    assert distance(half, models.truth) > 0.01
