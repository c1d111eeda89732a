"""How often a drafter's candidates are drawn, learned from what was drawn.

Each walked node with children is evidence: of its children, at most one was drawn. Stated estimates are sorted into
bins; within a bin, what was drawn for each stated candidate scales the estimate (above one half: what was missed scales what
it lacks to 1), pulled towards the stated estimate while evidence is thin. So what is stated above 0 is never expected to be 0: a
shift by the difference of the two made unlikely candidates worth nothing, and with them all that grew below.
"""

from __future__ import annotations

NUM_BINS = 16
"""Bins of the stated probability. Sixteen: enough to bend any curve that drafters state, few enough to fill fast."""

PRIOR_WEIGHT = 8.0
"""Observations that the stated estimate counts for."""

HALF_STEP = 1.0 / 510.0
"""What a stated 0 or 1 is taken to be off by, once something speaks against it: estimates come as one byte."""

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
        """Expected probability that a candidate is drawn once its parent is, 0 to 1; as stated before anything was drawn."""
        index = min(int(stated * NUM_BINS), NUM_BINS - 1)
        drawn, expected = self._drawn[index], self._stated[index]
        if stated < 0.5:
            return _scaled(stated, drawn, expected)
        seen = self._seen[index]
        return 1.0 - _scaled(1.0 - stated, seen - drawn, seen - expected)

    def table(self) -> list[tuple[float, float, float]]:
        """Mean stated probability, realised frequency and weight of each bin that has evidence."""
        return [
            (stated / seen, drawn / seen, seen)
            for stated, drawn, seen in zip(self._stated, self._drawn, self._seen, strict=True)
            if seen > 0.0
        ]


def _scaled(stated: float, realised: float, expected: float) -> float:
    if stated <= 0.0:
        if realised <= 0.0:
            return 0.0
        stated = HALF_STEP
    prior = PRIOR_WEIGHT * stated
    return min(stated * (realised + prior) / (expected + prior), 1.0)
