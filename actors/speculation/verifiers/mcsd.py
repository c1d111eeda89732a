"""Multi-candidate speculative decoding: test the siblings of a node in draw order against what is left of the target.

Source: Yang, Huang, Dai, Chen 2024, arXiv 2401.06706 (tree sampling with and without replacement); recursive rejection
without replacement is also the rule of Jeon et al. 2024, arXiv 2402.14160, and of Chen et al. 2024 (Sequoia),
arXiv 2402.12374.

Guarantee: the output has the law of the target if siblings were really drawn from the stated row, in the order of the
arrays and in the stated replacement mode. How many siblings are drawn may depend on the ones drawn before.

Edge cases: as for speculative sampling, which this is with one child a node. Without replacement the draft's row can run
out of tokens; candidates beyond are rejected.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.verify.acceptance import Acceptance, required
from outrider.actors.speculation.verify.descend import Choice, descend, shared_row
from outrider.actors.speculation.verify.residual import ratio, residual, without
from outrider.actors.speculation.verify.verifier_spec import WITH, WITHOUT, VerifierSpec


def mcsd(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None,
    decisions: Decisions,
) -> Acceptance:
    """Verify a tree from the top. Arguments: `acceptance.Verify`; the mode is `tree.replacement`."""
    rows_RV = required(draft_probs_RV, tree)

    def choose(target_V: Float64s, siblings: Sequence[int]) -> Choice:
        draft_V = shared_row(tree, siblings, rows_RV)
        for node in siblings:
            token = tree.tokens_N[node]
            if decisions.accept(ratio(target_V[token], draft_V[token])):
                return Choice(node, token)
            target_V = residual(target_V, draft_V)
            if tree.replacement is Replacement.WITHOUT:
                draft_V = without(draft_V, token)
        return Choice(None, decisions.draw(target_V))

    return descend(tree=tree, target_probs_NV=target_probs_NV, decisions=decisions, choose=choose)


SPECS = (
    VerifierSpec(
        name="mcsd_with_replacement",
        verify=mcsd,
        summary="independent siblings of one drafter, tested in draw order",
        source="Yang et al. 2024, arXiv 2401.06706",
        replacements=WITH,
    ),
    VerifierSpec(
        name="mcsd_without_replacement",
        verify=mcsd,
        summary="distinct siblings of one drafter, tested in draw order",
        source="Yang et al. 2024, arXiv 2401.06706",
        replacements=WITHOUT,
    ),
)
