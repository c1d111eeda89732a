"""What decides a token, and which tokens are likely. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.trees.forest import Float32s, Int64s
from outrider.actors.speculation.options import Sampling


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """What decides the token after each of R rows of logits."""

    seeds_R: NDArray[np.uint64]
    lengths_R: Int64s
    """Length of the committed text."""
    depths_R: Int64s
    """Nodes between it and the token."""
    inverse_temperatures_R: Float32s
    """1 at temperature 0."""
    scorings_R: Int64s
    sessions_R: Int64s
    """Equal for rows of one session, which are one after another: names its noise."""
    restricted: Mapping[int, Sampling]
    """Options of the rows that have some which exclude or favour tokens (`restrictions.is_restricted`)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredTokens:
    """Candidates for the token after each of R rows, the likeliest first."""

    tokens_RW: Int64s
    estimates_RW: Float32s
    """Probability of each; 0: it is excluded."""
    slopes_RW: Float32s
    """Score less the mean score under the estimates: d log(estimate) / d sharpness."""
