"""The speed of one way of decoding, learned from its rounds, and where it changed. Pure."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

PROBE_SHARE: Final = 0.01
"""Part of all tokens that trying the other way may cost."""

PROBE_ROUNDS: Final = 8
"""Rounds of one trial, the first not counted: passes of drafters are still running, or begin again. More find out more for the same
price less often."""

ROUNDS: Final = 256
"""Rounds that are remembered of each way. Less: ways that are nearly as fast could not be told apart. More: the mean would be of texts that are over,
and a trial might cost more."""

UNLIKELY: Final = -2.0 * math.log(PROBE_SHARE)
"""Logarithm of the likelihood ratio beyond which a change is not chance. Who takes chance for a change rests until the next trial, 1 / share rounds later; for
that to cost no more than the share, it may happen once in 1 / share squared."""


class Speed:
    """Of the last rounds, plain decoding being 1; those before a change are forgotten."""

    def __init__(self) -> None:
        self._speeds_R = np.zeros(2 * ROUNDS)
        self._first = self._end = 0

    @property
    def _known_R(self) -> NDArray[np.float64]:
        return self._speeds_R[self._first : self._end]

    @property
    def weight(self) -> int:
        """Rounds that are remembered."""
        return self._end - self._first

    @property
    def mean(self) -> float:
        """0 before there was a round."""
        return float(self._known_R.mean()) if self.weight else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean; infinite before there are two rounds."""
        if self.weight < 2:
            return math.inf
        return float(self._known_R.std()) / math.sqrt(self.weight - 1)

    def forget(self) -> None:
        """Nothing is known any more."""
        self._first = self._end = 0

    @property
    def is_time(self) -> bool:
        """A change was looked for with the last round: that costs most here, and is done as often as a trial is long."""
        return self._end % PROBE_ROUNDS == 0

    def observe(self, speed: float) -> bool:
        """Takes in a round. Returns whether the speed has changed."""
        if self._end == len(self._speeds_R):
            self._speeds_R[:ROUNDS] = self._speeds_R[ROUNDS:]
            self._first, self._end = self._first - ROUNDS, ROUNDS
        self._speeds_R[self._end] = speed
        self._end += 1
        self._first = max(self._first, self._end - ROUNDS)
        before = self._before_change() if self.is_time else 0
        self._first += before
        return before > 0

    def _before_change(self) -> int:
        """Rounds before the likeliest change, if there was one; else 0.

        The ratio of likelihoods of two normal laws that differ in their mean and of one (Page 1954, Hinkley 1970). Either side has as many
        rounds as a trial, since single rounds say nothing: they are not normal.
        """
        known_R = self._known_R
        count = len(known_R)
        if count < 2 * PROBE_ROUNDS:
            return 0
        sums_R = known_R.cumsum()
        before_C = np.arange(PROBE_ROUNDS, count - PROBE_ROUNDS + 1)
        after_C = count - before_C
        firsts_C = sums_R[before_C - 1]
        shifts_C = firsts_C / before_C - (sums_R[-1] - firsts_C) / after_C
        between_C = shifts_C**2 * before_C * after_C / count
        best = int(between_C.argmax())
        total = float(known_R.var()) * count
        within = max(total - float(between_C[best]), 1e-9 * total)
        if not total or 0.5 * count * math.log(total / within) <= UNLIKELY:
            return 0
        return int(before_C[best])
