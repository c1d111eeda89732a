"""How fast scheduling learns: the constants that its estimates share, in targets and in drafters.

Running means keep a weight of the past with each observation. What counts as one differs, so there are three weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]

PASSES: Final = 0.95
"""Weight that the past keeps with each pass: twenty passes. More would not follow a load that changes, less would let single hiccups
move decisions."""

ROUNDS: Final = 0.8
"""Weight that the past keeps with each round of a session, and with each arrival of candidates: five. A text that has become hard to
foresee is so for some rounds only, and there is one arrival a round at most."""

DRAWS: Final = 1.0 - 1.0 / 500.0
"""Weight that the past keeps with each draw that could have been a candidate: follows a text within some hundred tokens, and knows
acceptance to some per cent."""

PRIOR_DRAWS: Final = 8.0
"""Draws that a prior counts for. Less: the first mismatches swing the trees. More: a bad prior stays for long."""

SURPRISE: Final = 3.0
"""What took longer than so many times the prediction counts as so many times: one pause is not a law."""


@dataclass(slots=True)
class Delay:
    """Mean and spread of a time that is waited for, in seconds."""

    mean_s: float = 0.0
    """0 at first, so that a first wait happens."""
    spread_s: float = 0.0

    def observe(self, seconds: float) -> None:
        """Takes in how long an arrival took, or how long it was waited for in vain."""
        share = 1.0 - ROUNDS
        self.spread_s += share * (abs(seconds - self.mean_s) - self.spread_s)
        self.mean_s += share * (seconds - self.mean_s)

    def latest_s(self) -> float:
        """Time after which an arrival is late."""
        return self.mean_s + 2.0 * self.spread_s

    def soonest_s(self) -> float:
        """Time before which hardly one comes."""
        return max(self.mean_s - 2.0 * self.spread_s, 0.0)

    def lefts_s(self, elapsed_E: Float64s) -> Float64s:
        """Seconds that each will still take."""
        soon_E = np.maximum(self.mean_s - elapsed_E, self.spread_s)
        return np.where(elapsed_E <= self.latest_s(), soon_E, elapsed_E)

    def left_s(self, elapsed_s: float) -> float:
        """Seconds that one will still take."""
        return float(self.lefts_s(np.array([elapsed_s]))[0])
