"""What a target pass costs: seconds as a linear function of rows, fitted online.

Least squares with exponential forgetting, so that the model follows the machine. Pure: observations are pushed in.
"""

from __future__ import annotations

FORGET = 0.98
"""Weight of an observation after one more pass. Fifty passes of memory: slower would not follow a load that changes,
faster would let single hiccups move the slope."""

SMALLEST_PASS_S = 1e-5
"""No pass is predicted to be shorter than this, in seconds; keeps ratios finite before anything was seen."""


class CostModel:
    """Seconds of a pass = base + marginal x rows."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._rows = 0.0
        self._seconds = 0.0
        self._rows_rows = 0.0
        self._rows_seconds = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        """Takes in one pass.

        Args:
            rows: Tokens that were run.
            seconds: What the pass took. More than three times the prediction counts as three times: one pause of the
                machine must not be taken for a law.
        """
        if self._weight > 1.0:
            seconds = min(seconds, 3.0 * self.predict(rows))
        self._weight = FORGET * self._weight + 1.0
        self._rows = FORGET * self._rows + rows
        self._seconds = FORGET * self._seconds + seconds
        self._rows_rows = FORGET * self._rows_rows + rows * rows
        self._rows_seconds = FORGET * self._rows_seconds + rows * seconds

    @property
    def marginal_s(self) -> float:
        """Seconds of one more row, at least 0."""
        spread = self._weight * self._rows_rows - self._rows * self._rows
        if spread <= 1e-9 * self._weight * self._rows_rows:
            return 0.0
        slope = (self._weight * self._rows_seconds - self._rows * self._seconds) / spread
        # All the time for rows and none for the pass is the steepest that can be meant.
        return min(max(slope, 0.0), self._seconds / max(self._rows, 1.0))

    def predict(self, rows: int) -> float:
        """Seconds of a pass over so many rows."""
        if self._weight == 0.0:
            return SMALLEST_PASS_S
        marginal = self.marginal_s
        base = (self._seconds - marginal * self._rows) / self._weight
        return max(base + marginal * rows, SMALLEST_PASS_S)
