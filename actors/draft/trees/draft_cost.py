"""What a draft pass costs, learned from every pass, and how many rows are worth running in one. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation import learning


class PassCost:
    """Seconds of a pass = fixed + each x rows, by least squares with forgetting."""

    def __init__(self, fixed_s: float = 1e-3, row_s: float = 1e-5) -> None:
        """
        Args:
            fixed_s: Of a pass at first, in seconds.
            row_s: Of a row at first, in seconds.
        """
        self.fixed_s = fixed_s
        self.row_s = row_s
        self._weight = 0.0
        self._rows = self._seconds = 0.0
        self._rows_squared = self._product = 0.0

    def predict(self, rows: float) -> float:
        """Seconds of a pass over so many rows."""
        return self.fixed_s + self.row_s * rows

    def observe(self, rows: int, seconds: float) -> None:
        """Takes in one pass."""
        if self._weight > 0.0:
            seconds = min(seconds, learning.SURPRISE * self.predict(rows))
        self._weight = learning.PASSES * self._weight + 1.0
        share = 1.0 / self._weight
        self._rows += share * (rows - self._rows)
        self._seconds += share * (seconds - self._seconds)
        self._rows_squared += share * (rows * rows - self._rows_squared)
        self._product += share * (rows * seconds - self._product)
        spread = self._rows_squared - self._rows**2
        # Passes of equal size say nothing of a row; then what was known of it stays.
        if spread > 1e-6 * self._rows_squared:
            slope = (self._product - self._rows * self._seconds) / spread
            self.row_s = min(max(slope, 0.0), self._seconds / max(self._rows, 1.0))
        self.fixed_s = max(self._seconds - self.row_s * self._rows, 0.0)

    @property
    def free_rows(self) -> float:
        """Rows that take no longer than what a pass takes anyway, at least 1."""
        return max(self.fixed_s / self.row_s, 1.0) if self.row_s > 0.0 else np.inf

    def best_count(
        self, values_N: NDArray[np.float64], *, value: float = 0.0, rows: int = 0
    ) -> int:
        """How many of these nodes to run, so that a pass gives most value a second; at least one if the pass is empty otherwise.

        Args:
            values_N: Of nodes, descending.
            value: Of what the pass runs anyway.
            rows: Of that.
        """
        seconds = np.arange(rows + 1, rows + 1 + len(values_N)) * self.row_s
        seconds += self.fixed_s
        rates = values_N.cumsum()
        if value:
            rates += value
        rates /= np.maximum(seconds, 1e-9, out=seconds)
        best = int(rates.argmax())
        is_none_better = rows and value / max(self.predict(rows), 1e-9) >= rates[best]
        return 0 if is_none_better else 1 + best
