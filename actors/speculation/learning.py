"""How fast scheduling learns: the constants that its estimates share, in targets and in drafters.

Running means keep a weight of the past with each observation. What counts as one differs, so there are three weights.
"""

from __future__ import annotations

from typing import Final

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
