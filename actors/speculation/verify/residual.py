"""What is left of the target's law after a candidate has been rejected, and the chance of keeping one."""

from __future__ import annotations

import numpy as np

from outrider.actors.speculation.sampling.random_acts import Float64s


def excess(target_V: Float64s, draft_V: Float64s) -> Float64s:
    """max(target - draft, 0), not normalised."""
    return np.maximum(target_V - draft_V, 0.0)


def residual(target_V: Float64s, draft_V: Float64s) -> Float64s:
    """max(target - draft, 0), normalised; `target_V` itself if nothing is left.

    Nothing is left only if the two are equal, and then no candidate is rejected: only rounding can lead there.
    """
    excess_V = excess(target_V, draft_V)
    total = float(excess_V.sum())
    return excess_V / total if total > 0.0 else target_V


def without(draft_V: Float64s, token: int) -> Float64s:
    """The law of the next sibling after `token` has been drawn; all zero if nothing else was possible."""
    rest_V = draft_V.copy()
    rest_V[token] = 0.0
    total = float(rest_V.sum())
    return rest_V / total if total > 0.0 else rest_V


def ratio(target_prob: float, draft_prob: float) -> float:
    """target / draft, at most 1. A candidate that the draft cannot have drawn (draft 0) gets 0."""
    if draft_prob <= 0.0:
        return 0.0
    return 1.0 if target_prob >= draft_prob else target_prob / draft_prob
