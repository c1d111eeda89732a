"""SpecInfer: test the siblings of a node in random order, each against the draft that proposed it.

Source: Miao et al. 2023, arXiv 2305.09781, Algorithm 2 (multi-step speculative sampling).

Guarantee: the output has the law of the target if siblings are independent draws, each from the row it names, and their
number does not depend on their tokens. Siblings may come from different drafters. Wrong for draws without replacement,
and wrong if drawing stopped because of what was drawn: the random order must not tell which came last.

Edge cases: as for speculative sampling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance, required
from outrider.actors.speculation.verify.descend import Choice, descend
from outrider.actors.speculation.verify.residual import ratio, residual
from outrider.actors.speculation.verify.verifier_spec import WITH, TreeGrowth, VerifierSpec


def specinfer(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None,
    decisions: Decisions,
) -> Acceptance:
    """Verify a tree from the top. Arguments: `acceptance.Verify`."""
    rows_RV = required(draft_probs_RV, tree)

    def choose(target_V: Float64s, siblings: Sequence[int]) -> Choice:
        remaining = list(siblings)
        while remaining:
            node = remaining.pop(decisions.draw(np.ones(len(remaining))))
            token = tree.tokens_N[node]
            draft_V = rows_RV[tree.sources_N[node]]
            if decisions.accept(ratio(target_V[token], draft_V[token])):
                return Choice(node, token)
            target_V = residual(target_V, draft_V)
        return Choice(None, decisions.draw(target_V))

    return descend(tree=tree, target_probs_NV=target_probs_NV, decisions=decisions, choose=choose)


SPECS = (
    VerifierSpec(
        name="specinfer",
        verify=specinfer,
        summary="siblings of several drafters, tested in random order",
        source="Miao et al. 2023, arXiv 2305.09781",
        growth=TreeGrowth.PREFIX,
        replacements=WITH,
        mixes_drafters=True,
    ),
)
