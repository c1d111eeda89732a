"""Bringing an actor's clock onto the coordinator's, from question and answer (Mills 1991, the method of NTP). Pure.

With a question asked at A, received at B, answered at C and returned at D - A and D by our clock, B and C by the other -
the other clock is ahead by (B - A + C - D) / 2, wrong by at most half of what the way there and back took, (D - A) - (C - B):
the ways may be of unequal length, but neither is negative.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

WINDOW_NS = 5_000_000_000
"""The quickest reading of each such time counts. Longer lets clocks drift in between (50 ppm are a quarter of a millisecond),
shorter finds fewer quick readings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """One question and its answer, in nanoseconds."""

    asked_ns: int
    received_ns: int
    answered_ns: int
    returned_ns: int

    @property
    def offset_ns(self) -> float:
        """How far the other clock is ahead of ours."""
        return (self.received_ns - self.asked_ns + self.answered_ns - self.returned_ns) / 2

    @property
    def error_ns(self) -> float:
        """By how much that is wrong at most."""
        way_ns = (self.returned_ns - self.asked_ns) - (self.answered_ns - self.received_ns)
        return max(way_ns, 0) / 2


class ClockOffset:
    """Another's clock."""

    def __init__(self, readings: Iterable[ClockReading]) -> None:
        """Takes its readings; with none it is taken for ours."""
        best: dict[int, ClockReading] = {}
        for reading in readings:
            window = reading.asked_ns // WINDOW_NS
            if window not in best or reading.error_ns < best[window].error_ns:
                best[window] = reading
        self._anchors = sorted(best.values(), key=lambda reading: reading.received_ns)
        self._times = [reading.received_ns for reading in self._anchors]

    @property
    def offset_ns(self) -> float:
        """How far it is ahead of ours, at the most certain of its readings."""
        if not self._anchors:
            return 0.0
        return min(self._anchors, key=lambda reading: reading.error_ns).offset_ns

    @property
    def error_ns(self) -> float | None:
        """By how much its times are wrong at most, drift between readings aside; None without a reading."""
        if not self._anchors:
            return None
        return max(reading.error_ns for reading in self._anchors)

    def to_ours(self, time_ns: float) -> float:
        """One of its times by our clock: the offset changes evenly from one reading to the next."""
        if not self._anchors:
            return time_ns
        after = bisect_right(self._times, time_ns)
        if after == 0:
            return time_ns - self._anchors[0].offset_ns
        before = self._anchors[after - 1]
        if after == len(self._anchors):
            return time_ns - before.offset_ns
        following = self._anchors[after]
        part = (time_ns - before.received_ns) / (following.received_ns - before.received_ns)
        return time_ns - (before.offset_ns + part * (following.offset_ns - before.offset_ns))
