"""How far a drafter's probabilities are believed. Drafters calibrate what they state; one that errs nevertheless must not crowd out the candidates of
others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation import learning
from outrider.actors.speculation.trees.path_keys import Int64s

REMEMBERED = 1.0 / (1.0 - learning.DRAWS)
"""Draws of each drafter that are remembered."""


class Trust:
    """Realised over stated acceptance of each drafter, 1 at most."""

    def __init__(self) -> None:
        self._stated: list[float] = []
        self._drawn: list[float] = []

    def of(self, number: int) -> float:
        """What a drafter's probabilities are multiplied with."""
        if number >= len(self._stated):
            return 1.0
        # Every drafter is credited with some draws as good as stated.
        drawn = self._drawn[number] + learning.PRIOR_DRAWS
        stated = self._stated[number] + learning.PRIOR_DRAWS
        return min(drawn / stated, 1.0)

    def observe(
        self, drafters_N: Int64s, stated_N: NDArray[np.float64], drawn_N: NDArray[np.bool_]
    ) -> None:
        """Takes in candidates whose parents were drawn.

        Args:
            drafters_N: Who proposed each; negative: nobody.
            stated_N: As stated.
            drawn_N: Whether it was drawn.
        """
        is_given = drafters_N >= 0
        if not is_given.any():
            return
        numbers = drafters_N[is_given]
        stated = np.bincount(numbers, weights=stated_N[is_given])
        drawn = np.bincount(numbers, weights=drawn_N[is_given])
        more = len(stated) - len(self._stated)
        self._stated += [0.0] * more
        self._drawn += [0.0] * more
        for number in stated.nonzero()[0].tolist():
            total = self._stated[number] + float(stated[number])
            keep = min(REMEMBERED / total, 1.0)
            self._stated[number] = keep * total
            self._drawn[number] = keep * (self._drawn[number] + float(drawn[number]))
