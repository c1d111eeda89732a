"""Verifiers by name in the form that the enumeration calls."""

from __future__ import annotations

from collections.abc import Sequence

from tests.actors.speculation.trees.branches import (
    Check,
    Grow,
    Models,
    accepted_tokens,
    committed,
    distance,
    drafts,
    joint_law,
)

from outrider.actors.speculation.choice.verifier_registry import VERIFIERS, check_tree
from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.verify.acceptance import Acceptance

EXACT = 1e-12
"""Total variation at most this is rounding."""

VISIBLE = 1e-3
"""A forbidden variant must be off by more than this."""


def check_of(verifier: str) -> Check:
    """A verifier behind the check that the target makes."""

    def check(
        tree: DraftTree, target: Float64s, draft: Sequence[Float64s], decisions: Decisions
    ) -> Acceptance:
        check_tree(verifier, tree)
        return VERIFIERS[verifier].verify(
            tree=tree, target_probs_NV=target, draft_probs_RV=draft, decisions=decisions
        )

    return check


def error(verifier: str, grow: Grow, replacement: Replacement, models: Models) -> float:
    """Total variation between the output and the target."""
    outcomes = committed(models, drafts(models, grow, replacement), check_of(verifier))
    return distance(joint_law(models, outcomes), models.truth)


def mean_accepted(verifier: str, grow: Grow, replacement: Replacement, models: Models) -> float:
    """Expected number of accepted candidates."""
    return accepted_tokens(committed(models, drafts(models, grow, replacement), check_of(verifier)))
