"""Rules that need token ids only and are not offered: one that is exact, and faulty ones that must be caught."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verifiers.exact_match import exact_match
from outrider.actors.speculation.verify.acceptance import Acceptance, accepted
from outrider.actors.speculation.verify.descend import Choice, Choose, descend
from outrider.actors.speculation.verify.residual import without


def _down(tree: DraftTree, target: Float64s, decisions: Decisions, choose: Choose) -> Acceptance:
    return descend(tree=tree, target_probs_NV=target, decisions=decisions, choose=choose)


def one_hot(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """Test the children of a node in turn with what is left of the target's row (EAGLE's rule, for distinct siblings)."""

    def choose(target_V: Float64s, siblings: Sequence[int]) -> Choice:
        left_V = target_V
        for node in siblings:
            token = tree.tokens_N[node]
            if decisions.accept(float(left_V[token])):
                return Choice(node, token)
            left_V = without(left_V, token)
        return Choice(None, decisions.draw(left_V))

    return _down(tree, target, decisions, choose)


def one_hot_unnormalised(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """Children are tested with the target's row as it was, not with what is left of it."""

    def choose(target_V: Float64s, siblings: Sequence[int]) -> Choice:
        for node in siblings:
            token = tree.tokens_N[node]
            if decisions.accept(float(target_V[token])):
                return Choice(node, token)
        left_V = target_V.copy()
        left_V[[tree.tokens_N[node] for node in siblings]] = 0.0
        return Choice(None, decisions.draw(left_V if left_V.any() else target_V))

    return _down(tree, target, decisions, choose)


def redrawn_after_a_miss(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """A draw that is not a child is thrown away and drawn once more."""

    def choose(target_V: Float64s, siblings: Sequence[int]) -> Choice:
        token = decisions.draw(target_V)
        hit = [node for node in siblings if tree.tokens_N[node] == token]
        return Choice(hit[0], token) if hit else Choice(None, decisions.draw(target_V))

    return _down(tree, target, decisions, choose)


def longer_of_two(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """The tree is verified twice and the longer result kept."""
    first, second = (
        exact_match(tree=tree, target_probs_NV=target, decisions=decisions) for _ in range(2)
    )
    return first if len(first.path) >= len(second.path) else second


def bonus_of_the_row_before(
    tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
) -> Acceptance:
    """After a match at the last level the bonus token is drawn with the row before it."""
    outcome = exact_match(tree=tree, target_probs_NV=target, decisions=decisions)
    if len(outcome.path) < 2:
        return outcome
    stale_V = np.asarray(target[outcome.path[-2] + 1])
    return accepted(tree, outcome.path, decisions.draw(stale_V))


FAULTY = (one_hot_unnormalised, redrawn_after_a_miss, longer_of_two, bonus_of_the_row_before)
