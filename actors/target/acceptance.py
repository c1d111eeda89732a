"""How often a drafter's candidates are drawn, learned from what was drawn.

Each walked node with children is evidence: of its children, at most one was drawn. Stated estimates are sorted into
bins; a bin's expected probability is its realised frequency, pulled towards the stated estimate while evidence is thin.
"""

from __future__ import annotations

NUM_BINS = 16
"""Bins of the stated probability. Sixteen: enough to bend any curve that drafters state, few enough to fill fast."""

PRIOR_WEIGHT = 8.0
"""Observations that the stated estimate counts for."""

FORGET = 0.999
"""Weight of an observation after one more in its bin: a thousand candidates of memory."""


class Calibration:
    """Stated to expected probability, for one drafter."""

    def __init__(self) -> None:
        self._seen = [0.0] * NUM_BINS
        self._drawn = [0.0] * NUM_BINS
        self._stated = [0.0] * NUM_BINS

    def observe(self, stated: float, is_drawn: bool) -> None:
        """Takes in one candidate whose parent was reached."""
        index = min(int(stated * NUM_BINS), NUM_BINS - 1)
        self._seen[index] = FORGET * self._seen[index] + 1.0
        self._drawn[index] = FORGET * self._drawn[index] + (1.0 if is_drawn else 0.0)
        self._stated[index] = FORGET * self._stated[index] + stated

    def __call__(self, stated: float) -> float:
        """Expected probability that a candidate is drawn once its parent is, 0 to 1."""
        index = min(int(stated * NUM_BINS), NUM_BINS - 1)
        seen = self._seen[index]
        if seen == 0.0:
            return stated
        # The bin's realised excess over what was stated shifts the estimate within the bin.
        shift = (self._drawn[index] - self._stated[index]) / (seen + PRIOR_WEIGHT)
        return min(max(stated + shift, 0.0), 1.0)

    def table(self) -> list[tuple[float, float, float]]:
        """Mean stated probability, realised frequency and weight of each bin that has evidence."""
        return [
            (stated / seen, drawn / seen, seen)
            for stated, drawn, seen in zip(self._stated, self._drawn, self._seen, strict=True)
            if seen > 0.0
        ]
