"""A histogram without a lock: one thread observes, any other reads.

An observation is a search among a dozen bounds and two additions. What is read in the middle of one lacks it in part; the next
reading has it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.utils import floatToGoString


class Histogram:
    """How often values fell below each of some bounds."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Args:
        bounds: Upper bounds, ascending; one of infinity is added.
        """
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value, so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound, as Prometheus writes it, and number of values up to it; ends with infinity."""
        counts = list(self._counts)
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        return [
            (bound, float(count)) for bound, count in zip(bounds, accumulate(counts), strict=True)
        ]

    @property
    def sum(self) -> float:
        """Sum of all values."""
        return self._sum
