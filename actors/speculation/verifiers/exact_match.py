"""Exact match: the target draws, and a candidate survives only if it is the draw.

Source: "naive sampling" of Miao et al. 2023 (SpecInfer), arXiv 2305.09781, and of Yang et al. 2024, arXiv 2401.06706;
the same law as the one-hot rule for deterministic candidates (accept with the target's probability, else remove and
renormalise).

Guarantee: the output has the law of the target for *any* tree that was fixed before the draws, whoever made it and
whatever it claims. Draft probabilities are ignored.

Edge cases: an empty tree gives one token; of equal siblings the first is followed; at temperature 0 the draw is the
argmax.
"""

from __future__ import annotations

from outrider.actors.speculation.sampling.random_acts import Decisions, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance
from outrider.actors.speculation.verify.coupled_draws import walk
from outrider.actors.speculation.verify.verifier_spec import TreeGrowth, VerifierSpec


def exact_match(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None = None,
    decisions: Decisions,
) -> Acceptance:
    """Follow the target's draws as far as the tree holds them. Arguments: `acceptance.Verify`."""
    result = walk(
        tree.tokens_N,
        tree.parents_N,
        lambda node: decisions.draw(target_probs_NV[node + 1]),
        limit=tree.num_nodes + 1,
    )
    return Acceptance(path=result.path, tokens=result.tokens)


SPECS = (
    VerifierSpec(
        name="exact_match",
        verify=exact_match,
        summary="any tree, by drafters that know no noise",
        source="Miao et al. 2023, arXiv 2305.09781",
        growth=TreeGrowth.ANYTHING,
        needs_frozen_tree=False,
        mixes_drafters=True,
    ),
)
