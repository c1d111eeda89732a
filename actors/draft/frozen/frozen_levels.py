"""A session of the drafter of frozen trees, and how the next level of its tree is drawn: the law is settled, then children are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.draft.stopping.lengths import LengthPolicy
from outrider.actors.draft.trees.frozen_rounds import FrozenRounds, most_probable
from outrider.actors.frozen.sparse_rows import (
    DRAWS_A_SIBLING,
    MAX_KEPT,
    SparseRow,
    draw_siblings,
    freeze,
    least_prob,
    of_tokens,
    rest_share,
)
from outrider.actors.speculation.sampling.random_acts import Float64s, UniformDecisions
from outrider.actors.speculation.sampling.transforms import SamplingTransform
from outrider.actors.speculation.trees.draft_tree import Replacement


@dataclass(slots=True, kw_only=True)
class FrozenSession:
    """What the drafter of frozen trees keeps about a session."""

    slot: int
    rounds: FrozenRounds
    transform: SamplingTransform
    generator: np.random.Generator
    is_greedy: bool
    replacement: Replacement
    policy: LengthPolicy | None = None
    """How many levels a tree gets, if not always all."""
    cached: int = 0
    """Rows that the engine has cached. All of the text: then the round below it has begun."""


def grow_level(state: FrozenSession, scores_NV: torch.Tensor, probs_NV: Float64s) -> bool:
    """Draws the next level of a session's last tree.

    Args:
        state: The session's.
        scores_NV: The request's scores at the nodes of the last level, after its sampling options.
        probs_NV: Their softmax.

    Returns:
        True if the tree became complete.
    """
    rounds = state.rounds
    last = rounds.rounds[-1]
    if last.num_levels == 0 and state.policy is not None:
        # By the row of the base alone: what is drawn must decide neither what is drawn nor when the tree is sent.
        (rating,) = state.policy.rater(scores_NV).tolist()
        last.shape = last.shape.prefix(state.policy.frozen_depth(rating, last.shape.depth))
    level, branching = last.num_levels, last.shape.branching
    count = branching[level]
    if state.is_greedy:
        drawn = [most_probable(probs_V, count) for probs_V in probs_NV]
        laws = [of_tokens(probs_V, tokens) for probs_V, tokens in zip(probs_NV, drawn, strict=True)]
    else:
        least = least_prob(level)
        share = rest_share(count)
        laws = [freeze(probs_V, least, MAX_KEPT, rest_share=share) for probs_V in probs_NV]
        drawn = [_draw(state, law, count) for law in laws]
    rounds.grow(last, laws, drawn)
    return last.is_frozen


def _draw(state: FrozenSession, law: SparseRow, count: int) -> tuple[int, ...]:
    uniforms_U = UniformDecisions(state.generator.random(DRAWS_A_SIBLING * count))
    return draw_siblings(law, count, state.replacement, uniforms_U)
