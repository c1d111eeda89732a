"""Speculative sampling: test the tokens of one chain in turn, draw from the residual at the first failure.

Source: Chen, Borgeaud, Irving, Lespiau, Sifre, Jumper 2023, arXiv 2302.01318, Algorithm 2 (modified rejection
sampling); independently Leviathan, Kalman, Matias 2022, arXiv 2211.17192.

Guarantee: the output has the law of the target. A token is accepted with probability sum(min(target, draft)), one minus
the total variation distance.

Edge cases: an empty chain gives one token of the target; equal rows accept everything; disjoint rows accept nothing and
recover from the target; a residual without mass can be reached by rounding only and falls back to the target's row; a
token that the draft cannot have drawn is rejected. At temperature 0 the longest prefix of argmaxes survives.
"""

from __future__ import annotations

from outrider.actors.speculation.sampling.random_acts import Decisions, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance, accepted, required
from outrider.actors.speculation.verify.residual import ratio, residual
from outrider.actors.speculation.verify.verifier_spec import VerifierSpec


def speculative_sampling(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None,
    decisions: Decisions,
) -> Acceptance:
    """Verify a chain token by token. Arguments: `acceptance.Verify`; the tree must be a chain."""
    draft_probs_RV = required(draft_probs_RV, tree)
    for node, token in enumerate(tree.tokens_N):
        target_V, draft_V = target_probs_NV[node], draft_probs_RV[tree.sources_N[node]]
        if not decisions.accept(ratio(target_V[token], draft_V[token])):
            return accepted(tree, range(node), decisions.draw(residual(target_V, draft_V)))
    path = range(tree.num_nodes)
    return accepted(tree, path, decisions.draw(target_probs_NV[tree.num_nodes]))


SPECS = (
    VerifierSpec(
        name="speculative_sampling",
        verify=speculative_sampling,
        summary="to compare with the usual method, one candidate a step",
        source="Chen et al. 2023, arXiv 2302.01318",
        is_chain_only=True,
    ),
)
