"""What a target pass costs: seconds as a function of rows.

The shape of the curve is measured once, when the target warms up: on every device it has steps (a second row turns vector
products into matrix products) that a line fitted to the few sizes met while decoding would mistake for a slope. Online, a
scale follows the machine and the context, and a constant the time outside the model. Pure: observations are pushed in.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

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
        # Nothing measured: rows cost alike.
        self._curve = [0.0, SMALLEST_PASS_S]
        self._scale = 1.0
        self._overhead = 0.0
        self._is_warm = False
        self._prompt_row_s = 0.0

    def set_curve(self, seconds_by_rows: Mapping[int, float]) -> None:
        """Takes the measured curve.

        Args:
            seconds_by_rows: Seconds of a pass by number of rows; made monotone, because measurements wobble.
        """
        rows = sorted(seconds_by_rows)
        seconds = []
        least = SMALLEST_PASS_S
        for count in rows:
            least = max(least, seconds_by_rows[count])
            seconds.append(least)
        self._curve = _filled(rows, seconds)

    def set_prompt_row(self, seconds: float) -> None:
        """Takes what a row of a prompt takes, in seconds, measured with the curve."""
        self._prompt_row_s = seconds

    def observe(self, rows: int, model_s: float, total_s: float) -> None:
        """Takes in one pass.

        Args:
            rows: Tokens that were run.
            model_s: Seconds in the model.
            total_s: Seconds of the whole round, the model included.
        """
        ratio = min(model_s / self._seconds(rows), LARGEST_SURPRISE * self._scale)
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
        curve = self._curve
        below = min(max(rows, 0), len(curve) - 2)
        return self._scale * (curve[below + 1] - curve[below])

    def tokens_worth(self, tokens: int, sessions: int) -> float:
        """Committed tokens in one-token rounds of plain decoding by the measured curve, whatever the machine's pace is now.

        A token of many sessions is worth less than one of few, since they share passes. Without that, rounds with fewer sessions than
        others would seem slow.

        Args:
            tokens: Committed.
            sessions: That there are, at least 1: so many would share a plain pass.
        """
        outside = self._outside
        each_s = (self._seconds(sessions) + outside) / sessions
        return tokens * each_s / (self._seconds(1) + outside)

    def prompts_worth(self, rows: int) -> float:
        """Rows of prompts in the unit of `tokens_worth`."""
        return rows * self._prompt_row_s / (self._seconds(1) + self._outside)

    @property
    def _outside(self) -> float:
        """Overhead on the curve's scale."""
        return self._overhead / self._scale if self._scale > 0.0 else 0.0

    def predict(self, rows: int) -> float:
        """Seconds of a round whose pass runs so many rows."""
        return self._scale * self._seconds(rows) + self._overhead

    def _seconds(self, rows: int) -> float:
        """Seconds on the curve, which goes on beyond its end as it ended."""
        curve = self._curve
        if rows < len(curve):
            return curve[rows]
        return curve[-1] + (curve[-1] - curve[-2]) * (rows - len(curve) + 1)


def _filled(rows: list[int], seconds: list[float]) -> list[float]:
    """Seconds of every number of rows from 0 to the greatest measured: looked up many times a round, measured once."""
    if len(rows) < 2:
        rows, seconds = [0, *rows], [0.0, *seconds]
    slopes = [
        (after - before) / (more - fewer)
        for (fewer, more), (before, after) in zip(pairwise(rows), pairwise(seconds), strict=True)
    ]
    curve = [seconds[0] + slopes[0] * (count - rows[0]) for count in range(rows[0])]
    for start, stop, before, slope in zip(rows, rows[1:], seconds, slopes, strict=False):
        curve.extend(before + slope * (count - start) for count in range(start, stop))
    return [*curve, seconds[-1]]
