"""What a target pass costs: seconds as a function of rows.

The shape of the curve is measured once, when the target warms up: on every device it has steps (a second row turns vector
products into matrix products) that a line fitted to the few sizes met while decoding would mistake for a slope. Online, a
scale follows the machine and the context, and a constant the time outside the model. Pure: observations are pushed in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

FORGET = 0.95
"""Weight of the past in the running means: twenty passes. More would not follow a load that changes, less would let single
hiccups move decisions."""

SMALLEST_PASS_S = 1e-5
"""No pass is predicted to be shorter than this, in seconds; keeps ratios finite before anything was seen."""

SMALLEST_OVERHEAD_S = 1e-4
"""An overhead below this may still rise to it, in seconds; otherwise one of zero could never be corrected."""

LARGEST_SURPRISE = 3.0
"""A pass that took longer than this many times the prediction counts as this many times: one pause is not a law."""


class CostModel:
    """Seconds of a pass = scale x curve(rows) + overhead."""

    def __init__(self) -> None:
        self._rows: list[int] = [1]
        self._seconds: list[float] = [SMALLEST_PASS_S]
        self._scale = 1.0
        self._overhead = 0.0
        self._is_warm = False

    def set_curve(self, seconds_by_rows: Mapping[int, float]) -> None:
        """Takes the measured curve.

        Args:
            seconds_by_rows: Seconds of a pass by number of rows; made monotone, because measurements wobble.
        """
        self._rows = sorted(seconds_by_rows)
        self._seconds = []
        least = SMALLEST_PASS_S
        for rows in self._rows:
            least = max(least, seconds_by_rows[rows])
            self._seconds.append(least)

    def observe(self, rows: int, model_s: float, total_s: float) -> None:
        """Takes in one pass.

        Args:
            rows: Tokens that were run.
            model_s: Seconds in the model.
            total_s: Seconds of the whole round, the model included.
        """
        ratio = min(model_s / self._curve(rows), LARGEST_SURPRISE * self._scale)
        overhead = min(
            total_s - model_s, LARGEST_SURPRISE * max(self._overhead, SMALLEST_OVERHEAD_S)
        )
        if not self._is_warm:
            self._is_warm = True
            self._scale, self._overhead = ratio, overhead
            return
        self._scale = FORGET * self._scale + (1.0 - FORGET) * ratio
        self._overhead = FORGET * self._overhead + (1.0 - FORGET) * overhead

    def marginal_s(self, rows: int) -> float:
        """Seconds of one more row in a pass over about so many, at least 0."""
        return self._scale * self._slope(rows)

    def predict(self, rows: int) -> float:
        """Seconds of a round whose pass runs so many rows."""
        return self._scale * self._curve(rows) + self._overhead

    def _curve(self, rows: int) -> float:
        place = min(max(bisect_right(self._rows, rows) - 1, 0), len(self._rows) - 1)
        return self._seconds[place] + self._slope(rows) * (rows - self._rows[place])

    def _slope(self, rows: int) -> float:
        if len(self._rows) < 2:
            # Nothing measured: rows cost alike.
            return self._seconds[0] / self._rows[0]
        place = min(max(bisect_right(self._rows, rows) - 1, 0), len(self._rows) - 2)
        rise = self._seconds[place + 1] - self._seconds[place]
        return rise / (self._rows[place + 1] - self._rows[place])
