"""Acceptance at one node with k candidates, for every verifier, from a target's and a draft's row: the optimum beside it.

Closed forms where there are any; else the mean over draws, with the tests' outcome averaged exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.verifiers.optimum import best_acceptance_identical, best_acceptances_distinct
from bench.verifiers.rates import canonical_rate, exact_match_rate, kseq_rate, recursive_rate
from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.verify.residual import ratio, residual, without

COUNTS = (1, 2, 4, 8)
"""Candidates at the node."""

NUM_DRAWS = 8
"""Of noise, and of candidates without replacement, for each pair of rows."""


def rates(
    target_V: Float64s, draft_V: Float64s, rng: np.random.Generator, counts: Sequence[int] = COUNTS
) -> dict[tuple[str, int], float]:
    """Acceptance by name and number of candidates.

    Verifiers that do the same at one node share a name: `mcsd_with_replacement` stands for `specinfer`, and with one
    candidate for all that test a chain; `mcsd_without_replacement` for `traversal`.
    """
    noise_DV = rng.gumbel(size=(NUM_DRAWS, len(draft_V)))
    likely = np.argsort(-draft_V)[: max(counts)]
    found: dict[tuple[str, int], float] = {}
    matched_DK = _matches(target_V, draft_V, noise_DV, max(counts))
    rejected_all_DK = _rejected(target_V, draft_V, noise_DV, max(counts))
    distinct_K = best_acceptances_distinct(target_V, draft_V, max(counts))
    for k in counts:
        found["coupled", k] = float(matched_DK[:, :k].any(axis=1).mean())
        found["exact_match", k] = float(target_V[likely[:k]].sum())
        found["exact_match, drawn", k] = exact_match_rate(target_V, draft_V, k)
        found["mcsd_with_replacement", k] = recursive_rate(target_V, draft_V, k)
        found["mcsd_without_replacement", k] = float(
            1.0 - rejected_all_DK[:, :k].prod(axis=1).mean()
        )
        found["kseq", k] = kseq_rate(target_V, draft_V, k)
        found["canonical", k] = canonical_rate(target_V, draft_V, k)
        found["optimum, independent", k] = best_acceptance_identical(target_V, draft_V, k)
        found["optimum, distinct", k] = distinct_K[k - 1]
    return found


def frozen_rates(
    target_V: Float64s, draft_V: Float64s, rng: np.random.Generator, k: int
) -> dict[str, float]:
    """The verifiers that test draws from the draft's row, by name."""
    noise_DV = rng.gumbel(size=(NUM_DRAWS, len(draft_V)))
    return {
        "mcsd_with_replacement": recursive_rate(target_V, draft_V, k),
        "mcsd_without_replacement": float(
            1.0 - _rejected(target_V, draft_V, noise_DV, k).prod(axis=1).mean()
        ),
        "kseq": kseq_rate(target_V, draft_V, k),
        "canonical": canonical_rate(target_V, draft_V, k),
    }


def _matches(
    target_V: Float64s, draft_V: Float64s, noise_DV: Float64s, most: int
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Whether the target's draw is the draft's first, second, ... likely draw under the same noise."""
    with np.errstate(divide="ignore"):
        drawn_D = (np.log(target_V) + noise_DV).argmax(axis=1)
        likely_DK = _best(np.log(draft_V) + noise_DV, most)
    matched: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = likely_DK == drawn_D[:, None]
    return matched


def _rejected(target_V: Float64s, draft_V: Float64s, noise_DV: Float64s, most: int) -> Float64s:
    """Probability that the first, second, ... of distinct candidates is rejected, given that those before were.

    The best perturbed tokens are draws without replacement, in order; the same noise gives nearly the same candidates for
    nearly equal rows, so that differences between rows are known much better than their values.
    """
    with np.errstate(divide="ignore"):
        candidates_DK = _best(np.log(draft_V) + noise_DV, most)
    rejected_DK = np.ones(candidates_DK.shape)
    for draw, tokens in enumerate(candidates_DK.tolist()):
        left_V, row_V = target_V, draft_V
        for place, token in enumerate(tokens):
            rejected_DK[draw, place] = 1.0 - ratio(left_V[token], row_V[token])
            left_V, row_V = residual(left_V, row_V), without(row_V, token)
    return rejected_DK


def _best(scores_DV: Float64s, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The places of the greatest scores of each row, greatest first."""
    top_DK = np.argpartition(-scores_DV, count, axis=1)[:, :count]
    order_DK = np.argsort(-np.take_along_axis(scores_DV, top_DK, axis=1), axis=1)
    best: np.ndarray[tuple[int, int], np.dtype[np.int64]] = np.take_along_axis(
        top_DK, order_DK, axis=1
    )
    return best
