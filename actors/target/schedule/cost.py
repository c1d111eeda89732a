"""What a target pass costs: seconds as a function of rows, while drafters work and while they rest.

The shape of the curve is measured once, when the target warms up: on every device it has steps (a second row turns vector
products into matrix products) that a line fitted to the few sizes met while decoding would mistake for a slope. Online, a
scale follows the machine and the context, and a constant the time outside the model. Both are learned apart for passes while
drafters work and for others, because drafters may share the machine. Pure: observations are pushed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation import learning
from outrider.actors.speculation.trees.path_keys import Int64s

Float64s = NDArray[np.float64]

SMALLEST_S: Final = 1e-5
"""Seconds. No pass is predicted to be shorter; keeps ratios finite before anything was seen."""


class CostModel:
    """Seconds of a pass = scale x curve(rows) + overhead."""

    def __init__(self) -> None:
        # Nothing measured: rows cost alike.
        self._seconds_R: Float64s = np.array([SMALLEST_S])
        """The curve at 0, 1, 2, ... rows."""
        self._last_slope = 0.0
        self._scales = [1.0, 1.0]
        self._overheads = [0.0, 0.0]
        self._is_known = [False, False]

    def set_curve(self, seconds_by_rows: Mapping[int, float]) -> None:
        """Takes the measured curve; made monotone, because measurements wobble. It goes on beyond its end as it ended.

        Args:
            seconds_by_rows: Seconds of a pass by number of rows; two numbers at least.
        """
        rows = sorted(seconds_by_rows)
        seconds = np.maximum.accumulate([max(seconds_by_rows[n], SMALLEST_S) for n in rows])
        self._seconds_R = np.interp(np.arange(rows[-1] + 1), rows, seconds)
        if len(rows) > 1:
            self._last_slope = float(seconds[-1] - seconds[-2]) / (rows[-1] - rows[-2])

    def observe(self, rows: int, model_s: float, total_s: float, *, drafting: bool) -> None:
        """Takes in one pass without prompts.

        Args:
            rows: Tokens that were run.
            model_s: Seconds in the model.
            total_s: Seconds of the whole round, the model included.
            drafting: Drafters were at work.
        """
        scale, overhead = self._scales[drafting], self._overheads[drafting]
        ratio, outside = model_s / self.timed_s(rows), total_s - model_s
        if not self._is_known[drafting]:
            self._is_known[drafting] = True
            self._scales[drafting], self._overheads[drafting] = ratio, outside
            if not self._is_known[not drafting]:
                self._scales[not drafting], self._overheads[not drafting] = ratio, outside
            return
        ratio = min(ratio, learning.SURPRISE * scale)
        outside = min(outside, learning.SURPRISE * max(overhead, SMALLEST_S))
        self._scales[drafting] += (1.0 - learning.PASSES) * (ratio - scale)
        self._overheads[drafting] += (1.0 - learning.PASSES) * (outside - overhead)

    def seconds(self, rows: Int64s) -> Float64s:
        """Seconds of rounds with so many rows, while drafters work."""
        last = len(self._seconds_R) - 1
        curve = self._seconds_R[np.minimum(rows, last)]
        curve += self._last_slope * np.maximum(rows - last, 0)
        seconds: Float64s = self._scales[True] * curve + self._overheads[True]
        return seconds

    def predict(self, rows: int, *, drafting: bool = True) -> float:
        """Seconds of a round with so many rows."""
        return self._scales[drafting] * self.timed_s(rows) + self._overheads[drafting]

    def timed_s(self, rows: int) -> float:
        """Seconds in the model of a pass over so many rows as it was timed: the same for ever, however the machine or the context changes."""
        last = len(self._seconds_R) - 1
        return float(self._seconds_R[min(rows, last)]) + self._last_slope * max(rows - last, 0)
