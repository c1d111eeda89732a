"""Block verification: a chain is kept by the ratio of whole paths, not token by token.

Source: Sun, Mendlovic, Leviathan, Aharoni, Ro, Beirami, Suresh 2024, arXiv 2403.10444, Algorithm 2.

Guarantee: the output has the law of the target, and no verifier that sees only the rows along the chain accepts more.
The expected number of accepted tokens is the sum over prefixes of draft probability times clipped path ratio; never less
than speculative sampling's.

Edge cases: an empty chain gives one token of the target; a prefix whose rows are equal with weight 1 is never asked for,
because a longer one has been kept (rounding apart: then it is kept); a token that the draft cannot have drawn ends what
can be kept. At temperature 0 the longest prefix of argmaxes survives.
"""

from __future__ import annotations

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance, accepted, required
from outrider.actors.speculation.verify.residual import excess
from outrider.actors.speculation.verify.verifier_spec import VerifierSpec


def path_weight(before: float, target_prob: float, draft_prob: float) -> float:
    """The clipped ratio of a path one token longer, given that of the path before."""
    if draft_prob <= 0.0:
        return 0.0
    scaled = before * target_prob
    return 1.0 if scaled >= draft_prob else scaled / draft_prob


def keep_probability(weight: float, gain: float) -> float:
    """Probability of keeping a prefix once all longer ones have failed.

    Args:
        weight: Clipped ratio of the prefix.
        gain: Mass of the residual after it.
    """
    total = gain + 1.0 - weight
    return gain / total if total > 0.0 else 1.0


def correction(weight: float, target_V: Float64s, draft_V: Float64s) -> Float64s:
    """Residual after a kept prefix, not normalised."""
    return excess(weight * target_V, draft_V)


def block(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None,
    decisions: Decisions,
) -> Acceptance:
    """Verify a chain. Arguments: `acceptance.Verify`; the tree must be a chain."""
    rows_RV = required(draft_probs_RV, tree)
    weights = [1.0]
    for node, token in enumerate(tree.tokens_N):
        target_prob = float(target_probs_NV[node][token])
        draft_prob = float(rows_RV[tree.sources_N[node]][token])
        weights.append(path_weight(weights[-1], target_prob, draft_prob))
    longest = tree.num_nodes
    if longest == 0 or decisions.accept(weights[longest]):
        return accepted(tree, range(longest), decisions.draw(target_probs_NV[longest]))
    for kept in reversed(range(longest)):
        target_V = target_probs_NV[kept]
        rest_V = correction(weights[kept], target_V, rows_RV[tree.sources_N[kept]])
        gain = float(rest_V.sum())
        if kept == 0 or decisions.accept(keep_probability(weights[kept], gain)):
            return accepted(tree, range(kept), decisions.draw(rest_V if gain > 0.0 else target_V))
    raise AssertionError("the empty prefix is always kept")


SPECS = (
    VerifierSpec(
        name="block",
        verify=block,
        summary="a chain; accepts at least as much as speculative_sampling",
        source="Sun et al. 2024, arXiv 2403.10444",
        needs_all_target_rows=True,
        is_chain_only=True,
    ),
)
