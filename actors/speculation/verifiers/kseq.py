"""SpecTr's k-sequential selection: every sibling is tested against the same, scaled-down share of the target.

Source: Sun, Suresh, Ro, Beirami, Jain, Yu 2023 (SpecTr), arXiv 2310.15141, Algorithm 3 (k-SEQ).

Guarantee: the output has the law of the target if siblings are independent draws from one row and their number does not
depend on their tokens. Acceptance is at least 1 - (1 - 1/k)^k of the best possible with k independent siblings.

With common = sum(min(target / scale, draft)), a sibling is accepted with probability `common`, one of k with
1 - (1 - common)^k, and the rule is valid iff that is at most scale * common. The least valid scale is best; it is found
by bisection and rounded up, which is always valid.

Edge cases: disjoint rows accept nothing and draw from the target; with one sibling the scale is 1 and the rule is
speculative sampling; a residual draw that some sibling holds goes on below it, because the subtrees had no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verify.acceptance import Acceptance, required
from outrider.actors.speculation.verify.descend import Choice, descend, first_holding, shared_row
from outrider.actors.speculation.verify.residual import excess, ratio
from outrider.actors.speculation.verify.verifier_spec import WITH, TreeGrowth, VerifierSpec

_BISECTIONS = 60
"""Halvings of an interval within [1, k]: enough to reach neighbouring doubles for any k."""

_FEW = 64
"""Ratios that are sorted; more are put aside unsorted, about half of them at a time."""


@dataclass(frozen=True, slots=True)
class KseqScale:
    """The scale of one node, and what follows from it."""

    scale: float
    """Divides the target, 1 to k."""

    common: float
    """Probability that one sibling is accepted."""

    acceptance: float
    """Probability that one of k siblings is accepted."""


def best_scale(target_V: Float64s, draft_V: Float64s, k: int) -> KseqScale:
    """Find the least valid scale for `k` siblings.

    Where the scale lies between two neighbouring ratios target / draft, common = target sum / scale + draft sum over
    fixed sets of tokens. Only ratios between 1 and k matter, and of these, after each trial, those on one side of it.
    """

    def scaled(scale: float, common: float) -> KseqScale:
        common = min(common, 1.0)
        return KseqScale(scale, common, 1.0 - (1.0 - common) ** k)

    def is_valid(candidate: KseqScale) -> bool:
        return candidate.acceptance <= candidate.scale * candidate.common

    unscaled = scaled(1.0, float(np.minimum(target_V, draft_V).sum()))
    if k == 1 or is_valid(unscaled):
        return unscaled
    low, high = 1.0, float(k)
    is_below_V, is_above_V = target_V <= draft_V, target_V >= k * draft_V
    below, above = float(target_V[is_below_V].sum()), float(draft_V[is_above_V].sum())
    between = np.flatnonzero(~(is_below_V | is_above_V))
    target_S, draft_S = target_V[between], draft_V[between]
    ratios_S = target_S / draft_S
    for _ in range(_BISECTIONS):
        if len(ratios_S) <= _FEW:
            break
        middle = (low + high) / 2.0
        is_first_S = ratios_S <= middle
        first = below + float(target_S[is_first_S].sum())
        rest = above + float(draft_S[~is_first_S].sum())
        if is_valid(scaled(middle, first / middle + rest)):
            high, above = middle, rest
        else:
            low, below, is_first_S = middle, first, ~is_first_S
        target_S, draft_S, ratios_S = (
            target_S[is_first_S],
            draft_S[is_first_S],
            ratios_S[is_first_S],
        )
    order_S = np.argsort(ratios_S, kind="stable")
    ratios_S = ratios_S[order_S]
    below_P = below + np.append(0.0, np.cumsum(target_S[order_S]))
    above_P = above + np.append(np.cumsum(draft_S[order_S][::-1])[::-1], 0.0)
    for _ in range(_BISECTIONS):
        scale = (low + high) / 2.0
        place = int(np.searchsorted(ratios_S, scale))
        if is_valid(scaled(scale, float(below_P[place] / scale + above_P[place]))):
            high = scale
        else:
            low = scale
    place = int(np.searchsorted(ratios_S, high))
    return scaled(high, float(below_P[place] / high + above_P[place]))


def kseq(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None,
    decisions: Decisions,
) -> Acceptance:
    """Verify a tree from the top. Arguments: `acceptance.Verify`."""
    rows_RV = required(draft_probs_RV, tree)

    def choose(target_V: Float64s, siblings: Sequence[int]) -> Choice:
        draft_V = shared_row(tree, siblings, rows_RV)
        best = best_scale(target_V, draft_V, len(siblings))
        for node in siblings:
            token = tree.tokens_N[node]
            if decisions.accept(ratio(target_V[token], best.scale * draft_V[token])):
                return Choice(node, token)
        if best.common <= 0.0:
            return Choice(None, decisions.draw(target_V))
        share_V = np.minimum(target_V / best.scale, draft_V) * (best.acceptance / best.common)
        rest_V = excess(target_V, share_V)
        token = decisions.draw(rest_V if rest_V.any() else target_V)
        return first_holding(tree, siblings, token)

    return descend(tree=tree, target_probs_NV=target_probs_NV, decisions=decisions, choose=choose)


SPECS = (
    VerifierSpec(
        name="kseq",
        verify=kseq,
        summary="independent siblings, each tested against a share of the target",
        source="Sun et al. 2023, arXiv 2310.15141",
        growth=TreeGrowth.PREFIX,
        replacements=WITH,
    ),
)
