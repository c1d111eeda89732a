"""Acceptance at one node in closed form, for the methods that have one: what each verifier does with given rows.

A bench can average these over real text without drawing anything. For trees and for draws without replacement there is
no closed form; those are measured.
"""

from __future__ import annotations

import numpy as np

from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.verifiers.kseq import best_scale
from outrider.actors.speculation.verify.pair_selection import DEFAULT_BLOCK
from outrider.actors.speculation.verify.residual import residual
from outrider.actors.speculation.verify.tournament import Tournament


def exact_match_rate(target_V: Float64s, draft_V: Float64s, k: int) -> float:
    """Exact match with `k` independent candidates."""
    return float((target_V * (1.0 - (1.0 - draft_V) ** k)).sum())


def recursive_rate(target_V: Float64s, draft_V: Float64s, k: int) -> float:
    """`mcsd` and `specinfer` with `k` independent candidates; k = 1 is `speculative_sampling`."""
    rejected = 1.0
    for _ in range(k):
        rejected *= 1.0 - float(np.minimum(target_V, draft_V).sum())
        target_V = residual(target_V, draft_V)
    return 1.0 - rejected


def kseq_rate(target_V: Float64s, draft_V: Float64s, k: int) -> float:
    """`kseq` with `k` independent candidates, not counting residual draws that a sibling holds."""
    return best_scale(target_V, draft_V, k).acceptance


def canonical_rate(
    target_V: Float64s, draft_V: Float64s, k: int, block: int = DEFAULT_BLOCK
) -> float:
    """`canonical` with `k` independent candidates, not counting residual draws that a sibling holds."""
    if k == 1:
        return recursive_rate(target_V, draft_V, 1)
    tournament = Tournament(target_V, {0: draft_V}, block)
    for _ in range(k - 1):
        tournament.enter(0)
    return tournament.overlap


def coupled_rate(target_V: Float64s, draft_V: Float64s) -> float:
    """`coupled` with one candidate, the draft's own draw under the shared noise: Gumbel draws that agree.

    Source: Daliri et al. 2024, arXiv 2408.07978; quadratic in the number of tokens that both rows hold possible.
    """
    shared = np.flatnonzero((target_V > 0.0) & (draft_V > 0.0))
    with np.errstate(over="ignore"):
        target_terms = target_V / target_V[shared, None]
        draft_terms = draft_V / draft_V[shared, None]
        # The reciprocal of what overflows is zero, which is what it tends to.
        return float((1.0 / np.maximum(target_terms, draft_terms).sum(axis=1)).sum())
