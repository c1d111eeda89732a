"""The two random acts of verification and of drawing candidates, as an argument.

A verifier asks for chances with explicit probabilities and never sees a generator. In the service the answers come from
uniforms that are passed in (`UniformDecisions`); the proofs pass a source that follows every branch with its probability,
so that the very code that serves is the code whose law is summed up exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]


class ProbabilityRows(Protocol):
    """Probability rows, read one at a time: an array (N, V), or anything that makes rows when asked."""

    def __getitem__(self, row: int, /) -> Float64s:
        """The row, float64 (V,). Never written to."""


class Decisions(Protocol):
    """Answers to random questions. Each answer is independent of all others."""

    def accept(self, probability: float) -> bool:
        """True with this probability; values outside [0, 1] count as the nearer bound."""

    def draw(self, weights_V: Float64s) -> int:
        """An index with probability proportional to its weight; weights are not negative, one is positive."""


class UniformDecisions:
    """Decisions from given uniforms, each used once, in order. Equal uniforms give equal decisions."""

    def __init__(self, uniforms_U: Sequence[float] | Float64s) -> None:
        """Take the uniforms.

        Args:
            uniforms_U: In [0, 1), independent of everything else: the ones that test candidates must not be the
                ones that drew them.
        """
        self._uniforms_U = uniforms_U
        self._used = 0

    def accept(self, probability: float) -> bool:
        """True if the next uniform lies below the probability."""
        return self._next() < probability

    def draw(self, weights_V: Float64s) -> int:
        """The index whose share of the cumulative weights holds the next uniform; never one of weight 0."""
        cumulative_V = weights_V.cumsum()
        total = float(cumulative_V[-1])
        if not 0.0 < total < np.inf:
            raise ValueError(
                f"the weights to draw from sum to {total}; they must sum to a positive number"
            )
        index = int(cumulative_V.searchsorted(self._next() * total, side="right"))
        if index < len(cumulative_V):
            return index
        # The product was rounded up to the total: the last index that has weight.
        return int(cumulative_V.searchsorted(total))

    def _next(self) -> float:
        if self._used >= len(self._uniforms_U):
            raise ValueError(
                f"all {self._used} uniforms are used up; pass `uniforms_needed(num_nodes)` of them"
            )
        uniform = float(self._uniforms_U[self._used])
        self._used += 1
        return uniform


def uniforms_needed(num_nodes: int) -> int:
    """Greatest number of decisions that any verifier takes over a tree of this size.

    At most one choice and one test a candidate, and one draw at each node of the path and at the root.
    """
    return 3 * num_nodes + 1
