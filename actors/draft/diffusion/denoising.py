"""How many denoising steps a block is worth, and how much each of them is told. Pure.

A step is told the likeliest path so far. How good its candidates are depends on their distance from the last token that is known: the k-th behind it
is the likeliest candidate with the chance `first[k]`, and some candidate with `among[k]`. Behind the path that it was told a step replaces what those before
it said; elsewhere that stands. So with steps that begin at tokens 0 = r_1 < r_2 < .. the tokens right in a row from r_1 on are

    E(r_1) = A(L - r_1) - c (A(L - r_1) - A(n)) / a(n)  +  c E(r_2)          n = r_2 - r_1
    a(n) = among[0] .. among[n - 1],  A(n) = a(1) + .. + a(n),  c = first[0] .. first[n - 1]

Of as many steps those are best whose E is greatest; the number of steps is the one with the most tokens a second, (1 + E) over a pass of the target and the
steps. Christopher et al. 2024, arXiv 2408.05636, choose it by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

ONE_STEP = (0,)


def distances(block: int, starts: Sequence[int]) -> tuple[int, ...]:
    """How far each token of a block is from the last that was known in the step that foresees it; 0: directly behind it."""
    return tuple(token - max(s for s in starts if s <= token) for token in range(block))


class DistanceRates:
    """How good candidates are by their distance from the last known token."""

    def __init__(self, first: Sequence[float], among: Sequence[float]) -> None:
        """
        Args:
            first: How often a token is the likeliest candidate, given that those before it were right; as many as a block has tokens.
            among: How often it is one of the candidates.
        """
        self.block = len(among)
        self._firsts: list[float] = [1.0, *accumulate(first, mul)]
        self._reached: list[float] = [1.0, *accumulate(among, mul)]
        self._right: list[float] = [0.0, *accumulate(self._reached[1:])]

    def expected_tokens(self, starts: Sequence[int]) -> float:
        """E of steps that begin at these tokens."""
        worth = self._right[self.block - starts[-1]]
        for start, following in zip(starts[-2::-1], starts[:0:-1], strict=True):
            worth = self._with_step(start, following - start, worth)
        return worth

    def best_starts(self) -> list[tuple[int, ...]]:
        """The best beginnings of 1, 2, .. L steps: each number of steps follows from one step fewer."""
        block = self.block
        # By the token that the first of the steps begins at: E, and the beginnings.
        best: list[tuple[float, tuple[int, ...]]] = [
            (self._right[block - start], (start,)) for start in range(block)
        ]
        found = [best[0][1]]
        for steps in range(2, block + 1):
            best = [
                max(
                    (
                        self._with_step(start, following - start, best[following][0]),
                        (start, *best[following][1]),
                    )
                    for following in range(start + 1, block - steps + 2)
                )
                for start in range(block - steps + 1)
            ]
            found.append(best[0][1])
        return found

    def best_steps(self, *, round_s: float, step_s: float) -> tuple[int, ...]:
        """The beginnings of the steps with the most tokens a second; of equal ones the fewest.

        Args:
            round_s: Seconds of a pass of the target; 0: not known, and then one step is enough.
            step_s: Seconds of a step.
        """
        if round_s <= 0.0:
            return ONE_STEP

        def pace(starts: Sequence[int]) -> float:
            return (1.0 + self.expected_tokens(starts)) / (round_s + len(starts) * step_s)

        return max(self.best_starts(), key=lambda starts: (pace(starts), -len(starts)))

    def _with_step(self, start: int, size: int, worth: float) -> float:
        """E from `start` on, if another step begins `size` tokens behind it and is worth so much there."""
        whole, chance = self._right[self.block - start], self._firsts[size]
        if chance <= 0.0:
            return whole
        behind = (whole - self._right[size]) / self._reached[size]
        return whole + chance * (worth - behind)
