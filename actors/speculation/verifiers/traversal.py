"""Traversal verification: from the leaves up, a node is tried only after everything below it has failed.

Source: Weng, Hu, Chen, Liu, Mei, Qiu, Tian, Shi 2025, arXiv 2505.12398; on a chain it is block verification.

Guarantee: the output has the law of the target if siblings were really drawn from the stated row, in the order of the
arrays and in the stated replacement mode. How many siblings are drawn may depend on the ones drawn before.

A node carries the weight of its whole path. When a child and all below it has failed, the node's weight becomes
mass / (mass + 1 - weight), with mass that of the residual: this form, and no other, is exact.

Edge cases: the root's weight is 1 and stays 1, so it is always accepted; an update with nothing left and weight 1 can be
reached by rounding only and changes nothing. At temperature 0 the longest path of argmaxes survives.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.verifiers.block import path_weight
from outrider.actors.speculation.verify.acceptance import Acceptance, accepted, required
from outrider.actors.speculation.verify.descend import shared_row
from outrider.actors.speculation.verify.residual import excess, without
from outrider.actors.speculation.verify.verifier_spec import WITH, WITHOUT, VerifierSpec


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What is left of a node after some of its children have failed."""

    weight: float
    """Acceptance weight of the path to the node."""

    target_V: Float64s
    """Law of the token after it."""

    draft_V: Float64s
    """Law that the next child was drawn from."""


def after_failure(standing: Standing, token: int, replacement: Replacement) -> Standing:
    """The standing once the child that holds `token` has failed, with everything below it."""
    rest_V = excess(standing.weight * standing.target_V, standing.draft_V)
    mass = float(rest_V.sum())
    total = mass + 1.0 - standing.weight
    draft_V = standing.draft_V
    if replacement is Replacement.WITHOUT:
        draft_V = without(draft_V, token)
    return Standing(
        mass / total if total > 0.0 else 1.0,
        rest_V / mass if mass > 0.0 else standing.target_V,
        draft_V,
    )


def traversal(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None,
    decisions: Decisions,
) -> Acceptance:
    """Verify a tree from the leaves. Arguments: `acceptance.Verify`; the mode is `tree.replacement`."""
    rows_RV = required(draft_probs_RV, tree)
    children = tree.children()

    def visit(node: int, weight: float) -> tuple[list[int], int] | None:
        """The accepted path from the deepest node up to this one and the token after it; None if all failed."""
        target_V = target_probs_NV[node + 1]
        siblings = children.get(node)
        if siblings is not None:
            standing = Standing(weight, target_V, shared_row(tree, siblings, rows_RV))
            for child in siblings:
                token = tree.tokens_N[child]
                found = visit(
                    child,
                    path_weight(
                        standing.weight,
                        float(standing.target_V[token]),
                        float(standing.draft_V[token]),
                    ),
                )
                if found is not None:
                    found[0].append(node)
                    return found
                standing = after_failure(standing, token, tree.replacement)
            weight, target_V = standing.weight, standing.target_V
        if node == -1 or decisions.accept(weight):
            return [node], decisions.draw(target_V)
        return None

    found = visit(-1, 1.0)
    assert found is not None, "the root is always accepted"
    path, token = found
    return accepted(tree, path[-2::-1], token)


SPECS = (
    VerifierSpec(
        name="traversal",
        verify=traversal,
        summary="distinct siblings; from the leaves up, accepts most of all",
        source="Weng et al. 2025, arXiv 2505.12398",
        needs_all_target_rows=True,
        replacements=WITHOUT,
    ),
    VerifierSpec(
        name="traversal_with_replacement",
        verify=traversal,
        summary="independent siblings; from the leaves up",
        source="Weng et al. 2025, arXiv 2505.12398",
        needs_all_target_rows=True,
        replacements=WITH,
    ),
)
