"""Options of requests that exclude or favour tokens, followed by drafters as far as they are cheap: bias, top-k, top-p, min-p, and ids that the target lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from outrider.actors.draft.trees.calibration import Scoring
from outrider.actors.draft.trees.forest import Int64s
from outrider.actors.draft.trees.token_places import Places
from outrider.actors.engine.staging import to_device
from outrider.actors.speculation.options import Sampling

NUM_FILTERED = 64
"""Most probable tokens that top-k, top-p and min-p are applied to, as if there were no others."""


def is_restricted(sampling: Sampling) -> bool:
    """True if more than the temperature stands between a session's logits and scores, as far as drafters care."""
    return bool(sampling.logit_bias) or _is_filtered(sampling)


def _is_filtered(sampling: Sampling) -> bool:
    """True if top-k, top-p or min-p leave tokens out."""
    return bool(sampling.top_k) or sampling.top_p < 1.0 or sampling.min_p > 0.0


def restrict_(scores_RV: torch.Tensor, logits_RV: torch.Tensor, places: Places) -> None:
    """Follows bias, top-k, top-p and min-p, in place; the filters take the best tokens for the whole vocabulary."""
    device = scores_RV.device
    _bias_(scores_RV, places, places.restricted)
    filtered = {
        row: sampling
        for row, sampling in places.restricted.items()
        if _is_filtered(sampling) and places.scorings_R[row] != Scoring.GREEDY
    }
    if not filtered:
        return
    rows = np.array(list(filtered))
    rows_F = to_device(rows, device)
    scales_F1 = to_device(places.inverse_temperatures_R[rows, None], device)
    plain_FV = logits_RV[rows_F] * scales_F1
    _bias_(plain_FV, places, filtered, is_packed=True)
    values_FM, ids_FM = plain_FV.topk(min(NUM_FILTERED, plain_FV.shape[1]))
    limits = np.array(
        [
            (one.top_k or NUM_FILTERED, one.top_p if one.top_p < 1.0 else np.inf, one.min_p)
            for one in filtered.values()
        ],
        np.float32,
    )
    top_k_F1, top_p_F1, min_p_F1 = to_device(limits, device).unsqueeze(2).unbind(1)
    probs_FM = torch.softmax(values_FM, dim=1)
    keep_FM = torch.arange(probs_FM.shape[1], device=device) < top_k_F1
    keep_FM &= probs_FM.cumsum(1) - probs_FM < top_p_F1
    keep_FM &= probs_FM >= min_p_F1 * probs_FM[:, :1]
    keep_FM[:, 0] = True
    excluded_FV = torch.ones_like(plain_FV, dtype=torch.bool).scatter_(1, ids_FM, ~keep_FM)
    scores_RV[rows_F] = scores_RV[rows_F].masked_fill_(excluded_FV, -math.inf)


def _bias_(
    values_NV: torch.Tensor,
    places: Places,
    options: Mapping[int, Sampling],
    *,
    is_packed: bool = False,
) -> None:
    """Adds the bias of some rows, in place; `is_packed`: there are no other rows."""
    rows: list[int] = []
    tokens: list[int] = []
    biases: list[float] = []
    for place, (row, sampling) in enumerate(options.items()):
        scale = float(places.inverse_temperatures_R[row])
        for token, bias in sampling.logit_bias.items():
            rows.append(place if is_packed else row)
            tokens.append(token)
            biases.append(-math.inf if bias <= -100.0 else scale * bias)
    if rows:
        at = tuple(to_device(np.array(each), values_NV.device) for each in (rows, tokens))
        values_NV[at] += to_device(np.array(biases, np.float32), values_NV.device)


@torch.inference_mode()
def confine(logits_RV: torch.Tensor, vocab_sizes_R: Int64s) -> None:
    """Excludes ids that the target does not have, in place.

    Args:
        logits_RV: The draft model's, float32; or scores.
        vocab_sizes_R: Number of the target's ids, for each row.
    """
    if vocab_sizes_R.min(initial=logits_RV.shape[1]) >= logits_RV.shape[1]:
        return
    for vocab_size in set(vocab_sizes_R.tolist()):
        if vocab_size < logits_RV.shape[1]:
            rows = np.flatnonzero(vocab_sizes_R == vocab_size)
            logits_RV[to_device(rows, logits_RV.device), vocab_size:] = -torch.inf
