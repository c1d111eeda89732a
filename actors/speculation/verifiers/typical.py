"""Typical acceptance: a candidate stays if the target finds it likely enough, the less so the surer the target is.

Source: Cai et al. 2024 (Medusa), arXiv 2401.10774, section 2.3.1: token x stays if `p(x) > min(epsilon, delta * exp(-H(p)))`, with
the entropy H in nats. Defaults are those of the released code: .09 and .3.

No guarantee: the text does **not** have the law of the target. Likely tokens become likelier, others never appear once a drafter
proposes likely ones. At temperature 0 it is exact match.

Edge cases: siblings are tested in draw order; if none stays, the target draws from its whole row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.actors.speculation.number_options import NumberOption
from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance
from outrider.actors.speculation.verify.descend import Choice, descend
from outrider.actors.speculation.verify.verifier_spec import VerifierSpec


def typical(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None = None,
    decisions: Decisions,
    epsilon: float = 0.09,
    delta: float = 0.3,
) -> Acceptance:
    """Verify a tree from the top. Arguments: `acceptance.Verify`, and the two thresholds of the rule."""

    def choose(target_V: Float64s, siblings: Sequence[int]) -> Choice:
        possible = target_V[target_V > 0.0]
        entropy = -float((possible * np.log(possible)).sum())
        threshold = min(epsilon, delta * np.exp(-entropy))
        for node in siblings:
            token = tree.tokens_N[node]
            if target_V[token] > threshold:
                return Choice(node, token)
        return Choice(None, decisions.draw(target_V))

    return descend(tree=tree, target_probs_NV=target_probs_NV, decisions=decisions, choose=choose)


SPECS = (
    VerifierSpec(
        name="typical",
        verify=typical,
        summary="lossy: likely candidates stay, whatever the target would have drawn",
        source="Cai et al. 2024, arXiv 2401.10774",
        mixes_drafters=True,
        is_lossless=False,
        options={
            "epsilon": NumberOption(
                default=0.09, least=0.0, most=1.0, help="Probability that is always enough."
            ),
            "delta": NumberOption(
                default=0.3, least=0.0, most=1.0, help="Factor of exp(-entropy), the other bound."
            ),
        },
    ),
)
