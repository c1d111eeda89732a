"""How far the target's expectation of a candidate agrees with what becomes of it, for each drafter.

The target notes of every candidate whose parent the text reached what the drafter stated, what it expected, trusting that drafter
as far as it does, and whether it drew it. In bins of equal width this is a reliability diagram (DeGroot and Fienberg 1983);
the mean distance from the diagonal is the expected calibration error (Naeini et al. 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.candidates.trust import Trust
from outrider.actors.target.state.session_table import Bools, Float64s

NUM_BINS = 10
"""Bins of probability in a diagram."""

Observation = tuple[float, float, bool]
"""Stated by the drafter, expected by the target, and whether it was drawn."""

_observations: list[Observation] = []


def record_observations() -> None:
    """Makes every target of this process note what it is told. Only for a process of the benchmark's own."""
    learn = Trust.observe

    def observe(self: Trust, drafters_N: Int64s, stated_N: Float64s, drawn_N: Bools) -> None:
        told = zip(drafters_N.tolist(), stated_N.tolist(), drawn_N.tolist(), strict=True)
        _observations.extend(
            (stated, self.of(drafter) * stated, is_drawn)
            for drafter, stated, is_drawn in told
            if drafter >= 0
        )
        learn(self, drafters_N, stated_N, drawn_N)

    setattr(Trust, "observe", observe)  # noqa: B010 - an assignment to a method is no type


def take_observations() -> list[Observation]:
    """What was noted since the last time."""
    taken = _observations[:]
    _observations.clear()
    return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Candidates of which about the same was expected."""

    expected: float
    """Mean expectation."""

    drawn: float
    """Fraction that the target drew."""

    count: int
    """How many."""


def diagram(pairs: Sequence[tuple[float, bool]], *, num_bins: int = NUM_BINS) -> list[Bin]:
    """The bins that have candidates, from improbable to probable.

    Args:
        pairs: Expected probability and fate of each candidate.
        num_bins: Bins of [0, 1].
    """
    bins: dict[int, list[tuple[float, bool]]] = {}
    for expected, is_drawn in pairs:
        bins.setdefault(min(int(expected * num_bins), num_bins - 1), []).append(
            (expected, is_drawn)
        )
    return [
        Bin(
            expected=sum(expected for expected, _ in members) / len(members),
            drawn=sum(is_drawn for _, is_drawn in members) / len(members),
            count=len(members),
        )
        for _, members in sorted(bins.items())
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance between expectation and frequency, each candidate weighing alike; 0 without candidates."""
    total = sum(bin_.count for bin_ in bins)
    if total == 0:
        return 0.0
    return sum(bin_.count * abs(bin_.expected - bin_.drawn) for bin_ in bins) / total
