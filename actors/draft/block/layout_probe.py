"""Which token each slot of a block predicts, told from known tokens: some files do not say, and of those that do some say it wrongly.

A net is run as well with the wrong reading as with the right one, and then foresees next to nothing, with no error. So slots are scored against
known tokens at three shifts: the one behind their own place (`first_slot` 0, `sample_from_anchor: true` in files of the library `speculators`), the one
at it (1, false), and the one before it (2), which nobody trains and which says how much a wrong reading foresees. All three are asked about
the same tokens, so two readings differ by the tokens that one foresees and the other does not: for readings that are equally good these are
tosses of a fair coin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_READINGS = 3

LEAST = 64
"""Known tokens before a reading is chosen. Looked at again at twice as many, and so on."""

MOST = 16 * LEAST
"""Known tokens after which no reading is looked for any more."""

SURE = 4.0
"""Standard deviations of a fair coin by which a reading must lead each other one: by chance in one of 10,000 looks at most."""

SAID = ("sample_from_anchor: true", "sample_from_anchor: false")
"""The readings that nets are run with, as the library's files say it."""

PLACES = ("behind its own place", "at its own place")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What was found."""

    first_slot: int | None
    """The reading that leads, as in `BlockConfig.first_slot`; None: none does that nets are run with."""

    hits: tuple[int, ...]
    """Known tokens that each reading foresees."""

    num: int
    """Of so many."""

    def note(self, read: int) -> str:
        """What people should know of it, where slots were read from `read` on."""
        true, false, further = self.hits
        figures = (
            f"of {self.num} known tokens {true} are foreseen with true, {false} with false, "
            f"{further} one slot further"
        )
        if self.first_slot is None:
            return (
                f"no reading of its slots stands out, so that it stays at {SAID[read]}; it is not trained, or for another "
                f"target or other layers, and little will be foreseen: {figures}"
            )
        if self.first_slot != read:
            return (
                f"it was read with {SAID[read]}, but each slot predicts the token {PLACES[self.first_slot]}: it is read "
                f"with {SAID[self.first_slot]} from now on, which its config.json should say: {figures}"
            )
        return f"each slot predicts the token {PLACES[read]}, {SAID[read]}: {figures}"


class LayoutProbe:
    """Gathers which readings foresee which tokens, until one leads or none will."""

    def __init__(self) -> None:
        self._num, self._next = 0, LEAST
        self._wins_33 = np.zeros((NUM_READINGS, NUM_READINGS), np.int64)
        """Tokens that a reading foresees and another does not."""
        self._hits_3 = np.zeros(NUM_READINGS, np.int64)

    def add(self, hits_L3: NDArray[np.bool_]) -> Layout | None:
        """Takes in which readings foresee which tokens. Those that all foresee, as in runs of one token, say nothing and do not count.

        Returns:
            What was found; None: more tokens are needed. There is nothing to add afterwards.
        """
        hits_L3 = hits_L3[~hits_L3.all(axis=1)]
        self._num += len(hits_L3)
        self._hits_3 += hits_L3.sum(axis=0)
        hits = hits_L3.astype(np.int64)
        self._wins_33 += hits.T @ (1 - hits)
        if self._num < self._next:
            return None
        while self._next <= self._num:
            self._next *= 2
        leader = int(self._hits_3.argmax())
        is_sure = all(self._leads(leader, k) for k in range(NUM_READINGS) if k != leader)
        if not is_sure and self._num < MOST:
            return None
        return Layout(
            first_slot=leader if is_sure and leader < len(SAID) else None,
            hits=tuple(self._hits_3.tolist()),
            num=self._num,
        )

    def _leads(self, one: int, other: int) -> bool:
        won, lost = int(self._wins_33[one, other]), int(self._wins_33[other, one])
        return won - lost > 0 and (won - lost) ** 2 >= SURE**2 * (won + lost)
