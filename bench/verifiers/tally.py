"""Sums over rounds, kept by prompt: rounds of one text are alike, so errors are estimated from prompt to prompt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Key = tuple[Any, ...]
"""What is counted: a name, and what tells it from others of that name."""


@dataclass(slots=True)
class Tally:
    """For each key and prompt: numbers that add up, the first of them the count."""

    sums: dict[Key, dict[int, np.ndarray[tuple[int], np.dtype[np.float64]]]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add(self, key: Key, prompt: int, *values: float) -> None:
        """One observation."""
        row = np.array([1.0, *values])
        known = self.sums[key].get(prompt)
        self.sums[key][prompt] = row if known is None else known + row

    def merge(self, other: Tally) -> None:
        """Adds what another process counted; no prompt was in both."""
        for key, by_prompt in other.sums.items():
            self.sums[key].update(by_prompt)

    def ratio(self, key: Key, over: int = 1, under: int = 0) -> tuple[float, float]:
        """One sum over another (by default over the count), and its standard error."""
        return ratio_of([(row[over], row[under]) for row in self.sums[key].values()])

    def relative_loss(self, key: Key, other: Key, over: int, under: int) -> tuple[float, float]:
        """By which part the first key's ratio is less than the second's, and its standard error; prompts are paired."""
        ours, theirs = self.sums[key], self.sums[other]
        first, second = self.ratio(key, over, under)[0], self.ratio(other, over, under)[0]
        ours_under = sum(row[under] for row in ours.values())
        theirs_under = sum(row[under] for row in theirs.values())
        if second == 0.0:
            return float("nan"), float("nan")
        # In units of the second ratio, so that a first of zero is a value like others.
        deviations = [
            (ours[p][over] - first * ours[p][under]) / ours_under
            - first / second * (theirs[p][over] - second * theirs[p][under]) / theirs_under
            for p in ours
        ]
        error = float(np.sqrt(np.square(deviations).sum())) / second
        return 1.0 - first / second, error

    def count(self, key: Key) -> int:
        """Observations."""
        return int(sum(row[0] for row in self.sums[key].values()))

    def mean_row(self, key: Key) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Every sum over the count."""
        total = np.sum(list(self.sums[key].values()), axis=0)
        mean: np.ndarray[tuple[int], np.dtype[np.float64]] = total[1:] / total[0]
        return mean


def ratio_of(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The ratio of two sums over groups, and its standard error from group to group (linearised).

    Args:
        pairs: Numerator and denominator of each group; groups are independent.
    """
    pairs_G2 = np.array(pairs)
    over, under = pairs_G2.sum(axis=0)
    value = over / under
    num = len(pairs_G2)
    if num < 2:
        return float(value), float("nan")
    deviations_G = pairs_G2[:, 0] - value * pairs_G2[:, 1]
    error = np.sqrt(num / (num - 1) * (deviations_G**2).sum()) / under
    return float(value), float(error)
