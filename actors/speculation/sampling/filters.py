"""Top-k and top-p: keep a prefix of the tokens in descending order of score.

The order is total (equal scores: the lower id first), so both are prefixes of one order, and what is kept is settled by
two numbers a row: the least score kept, and how many tokens of exactly that score. No full sort is needed to find them.
"""

from __future__ import annotations

import torch
from torch import Tensor

_WEIGHT_SCALE = 2.0**40
"""Weights exp(score - greatest) are rounded to multiples of 1/this, and summed as integers: exactly, in any order.
A vocabulary of 2^22 still fits in 63 bits; the rounding is far below that of exp in float32."""

_FIRST_LOOK = 256
"""Most probable tokens that top-p looks at before it looks at eight times as many; more is slower for peaked rows."""


def keep_most_probable(scores_NV: Tensor, *, top_k: int, top_p: float) -> Tensor:
    """Return the scores with everything outside top-k, then top-p, at -inf.

    Args:
        scores_NV: float32 log-weights; -inf excludes.
        top_k: Keep this many; 0 keeps all.
        top_p: Of those, keep the shortest prefix with at least this share of their weight; 1 keeps all.
    """
    vocab_size = scores_NV.shape[1]
    if not 0 < top_k < vocab_size:
        if top_p >= 1.0:
            return scores_NV
        top_k = vocab_size
    if top_p >= 1.0:
        best_NK = scores_NV.topk(top_k).values
        lengths_N1 = torch.full_like(best_NK[:, :1], top_k, dtype=torch.long)
    else:
        best_NK, lengths_N1 = _nucleus(scores_NV, top_k, top_p)
    return _keep_prefixes(scores_NV, best_NK, lengths_N1)


def greatest(scores_NV: Tensor) -> Tensor:
    """Return the greatest score of each row, (N, 1); finite even if everything is excluded."""
    return scores_NV.amax(dim=1, keepdim=True).clamp_(min=torch.finfo(torch.float32).min)


def _nucleus(scores_NV: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """Return the best scores of each row, descending, (N, K), and how many of them to keep, (N, 1)."""
    greatest_N1 = greatest(scores_NV)
    looked = top_k if top_k < scores_NV.shape[1] else min(top_k, _FIRST_LOOK)
    best_NK = scores_NV.topk(looked).values
    counted = best_NK if looked == top_k else scores_NV
    total_N1 = _weights(counted, greatest_N1).sum(dim=1, keepdim=True)
    wanted_N1 = total_N1.to(torch.float64) * top_p
    while True:
        reached_NK = _weights(best_NK, greatest_N1).cumsum(dim=1)
        if looked == top_k or bool((reached_NK[:, -1:] >= wanted_N1).all()):
            break
        looked = min(top_k, looked * 8)
        best_NK = scores_NV.topk(looked).values
    lengths_N1 = (reached_NK < wanted_N1).sum(dim=1, keepdim=True) + 1
    return best_NK, lengths_N1.clamp_(max=looked)


def _weights(scores: Tensor, greatest: Tensor) -> Tensor:
    """Weights relative to the greatest as whole multiples of 1 / _WEIGHT_SCALE: int64."""
    return (scores - greatest).exp_().mul_(_WEIGHT_SCALE).round_().to(torch.int64)


def _keep_prefixes(scores_NV: Tensor, best_NK: Tensor, lengths_N1: Tensor) -> Tensor:
    """Exclude all but the first `lengths_N1` tokens of each row in descending order, lower ids first."""
    least_N1 = best_NK.gather(1, lengths_N1 - 1)
    num_above_N1 = (best_NK > least_N1).sum(dim=1, keepdim=True)
    kept_NV = scores_NV.masked_fill(scores_NV < least_N1, -torch.inf)
    ties_NV = scores_NV == least_N1
    spare_N1 = ties_NV.sum(dim=1, keepdim=True) - (lengths_N1 - num_above_N1)
    for row in (spare_N1.squeeze(1) > 0).nonzero().flatten().tolist():
        tie_ids = ties_NV[row].nonzero().flatten()
        kept_NV[row, tie_ids[len(tie_ids) - int(spare_N1[row]) :]] = -torch.inf
    return kept_NV
