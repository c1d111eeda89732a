"""The sampling transforms once more, plainly: one row, float64, sorting everything, in the order of the definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.options import Sampling

Row = NDArray[np.float64]


def scores_before_filters(
    logits: Row,
    sampling: Sampling,
    prompt: Sequence[int],
    output: Sequence[int],
    eos: Sequence[int],
) -> Row:
    """Bias, penalties, forbidden stop tokens, temperature."""
    scores = logits.astype(np.float64).copy()
    for token_id, bias in sampling.logit_bias.items():
        scores[token_id] = -np.inf if bias <= -100 else scores[token_id] + bias
    for token_id in set(prompt) | set(output):
        penalty = sampling.repetition_penalty
        scores[token_id] *= 1 / penalty if scores[token_id] > 0 else penalty
    for token_id in set(output):
        count = list(output).count(token_id)
        scores[token_id] -= sampling.presence_penalty + count * sampling.frequency_penalty
    if len(output) < sampling.min_tokens:
        for token_id in (*sampling.stop_token_ids, *(() if sampling.ignore_eos else eos)):
            scores[token_id] = -np.inf
    return scores if sampling.temperature == 0 else scores / sampling.temperature


def kept_counts(scores: Row, sampling: Sampling, slack: float) -> tuple[int, int]:
    """Least and greatest number of tokens, in order, that the filters may keep if top-p is off by `slack`."""
    order = order_of(scores)
    probs = probabilities(scores)[order]
    num = len(scores) if sampling.top_k == 0 else min(sampling.top_k, len(scores))
    shares = np.cumsum(probs[:num]) / probs[:num].sum()
    bounds = []
    for sign in (-1, 1):
        length = num
        if sampling.top_p < 1:
            length = min(num, int((shares < sampling.top_p + sign * slack).sum()) + 1)
        if sampling.min_p > 0:
            length = min(
                length, int((probs >= sampling.min_p * probs[0] * (1 - sign * slack)).sum())
            )
        bounds.append(min(length, int(np.isfinite(scores).sum())))
    return bounds[0], bounds[1]


def order_of(scores: Row) -> NDArray[np.int64]:
    """Token ids by descending score, equal scores by ascending id."""
    return np.lexsort((np.arange(len(scores)), -scores)).astype(np.int64)


def probabilities(scores: Row) -> Row:
    """Softmax; -inf has probability 0."""
    weights = np.exp(scores - scores.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def target_probs(
    logits: Row,
    sampling: Sampling,
    *,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    eos: Sequence[int] = (),
) -> Row:
    """The distribution of the next token."""
    scores = scores_before_filters(logits, sampling, prompt, output, eos)
    if sampling.temperature == 0:
        return np.asarray(np.eye(len(scores))[int(scores.argmax())], dtype=np.float64)
    length, _ = kept_counts(scores, sampling, slack=0.0)
    kept = np.full_like(scores, -np.inf)
    kept[order_of(scores)[:length]] = scores[order_of(scores)[:length]]
    return probabilities(kept)
