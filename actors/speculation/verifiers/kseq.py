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

from outrider.actors.speculation.decisions import Decisions, Float64s, Rows
from outrider.actors.speculation.draft_tree import DraftTree
from outrider.actors.speculation.verifiers.acceptance import Acceptance, required
from outrider.actors.speculation.verifiers.descend import Choice, descend, first_holding, shared_row
from outrider.actors.speculation.verifiers.residual import excess, ratio

_BISECTIONS = 60
"""Halvings of an interval within [1, k]: enough to reach neighbouring doubles for any k."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of one node, and what follows from it."""

    scale: float
    """Divides the target, 1 to k."""

    common: float
    """Probability that one sibling is accepted."""

    acceptance: float
    """Probability that one of k siblings is accepted."""


def best_scale(target_V: Float64s, draft_V: Float64s, k: int) -> Scale:
    """Find the least valid scale for `k` siblings.

    Where the scale lies between two neighbouring ratios target / draft, common = target sum / scale + draft sum over
    fixed sets of tokens, so one binary search among the ratios leaves a search over plain numbers.
    """
    support = np.flatnonzero(draft_V)
    with np.errstate(over="ignore"):  # an infinite ratio sorts last, which is where it belongs
        ratios_S = target_V[support] / draft_V[support]
    order_S = np.argsort(ratios_S, kind="stable")
    ratios_S, draft_S = ratios_S[order_S], draft_V[support][order_S]
    below = np.append(0.0, np.cumsum(target_V[support][order_S]))
    above = np.append(np.cumsum(draft_S[::-1])[::-1], 0.0)

    def at(scale: float, place: int) -> Scale:
        common = min(float(below[place] / scale + above[place]), 1.0)
        return Scale(scale, common, 1.0 - (1.0 - common) ** k)

    def is_valid(candidate: Scale) -> bool:
        return candidate.acceptance <= candidate.scale * candidate.common

    def place_of(scale: float) -> int:
        return int(np.searchsorted(ratios_S, scale, side="right"))

    low, high = 1.0, float(k)
    if is_valid(at(low, place_of(low))):
        return at(low, place_of(low))
    first, last = place_of(low), place_of(high)
    while first < last:
        middle = (first + last) // 2
        if is_valid(at(float(ratios_S[middle]), middle + 1)):
            last, high = middle, float(ratios_S[middle])
        else:
            first, low = middle + 1, float(ratios_S[middle])
    for _ in range(_BISECTIONS):
        scale = (low + high) / 2.0
        if is_valid(at(scale, first)):
            high = scale
        else:
            low = scale
    return at(high, first)


def kseq(
    *, tree: DraftTree, target_probs_NV: Rows, draft_probs_RV: Rows | None, decisions: Decisions
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
