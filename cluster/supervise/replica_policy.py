"""How many replicas there should be. Pure.

What is needed follows from the texts alone, not from how many replicas there are, so that a change never brings about the next one.
Time does the rest: a need must last to be met, and must be gone for long before it is forgotten. A target is not judged by how busy it
is: one text keeps it as busy as it can be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cluster.config.config_service import Autoscaling
from outrider.cluster.roster.roster import ReplicaScale, Role
from outrider.cluster.supervise.observed_load import LoadSample

TOLERANCE = 0.1
"""Part of the occupancy that must stay free with fewer replicas: a load at the very limit changes nothing."""

UNPAID_S = 120.0
"""How long drafters must have brought too little before they are ended: several times as long as the trials of a target whose
drafters rest are apart."""

LEAST_GAIN = 0.05
"""Tokens proposed by a drafter in each token committed below which it does not pay: decoding would be at most a twentieth slower
without it."""

WORTH_ADDING = 2 * LEAST_GAIN
"""The same, below which no more of them are started: those that were ended must have become much better to come again."""

JUDGED_TOKENS = 1_000
"""Committed tokens below which nothing is said of drafters: one text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDecision:
    """How many there should be."""

    current: int
    """As many there are."""

    wanted: int
    """As many as the load asks for, within bounds."""

    reason: str = ""
    """Why, in words; empty if that is what there is."""

    is_careful: bool = False
    """Those that are missing come one by one."""

    @property
    def grows(self) -> bool:
        """Whether more are wanted than there are."""
        return self.wanted > self.current

    @property
    def count(self) -> int:
        """As many there should be after the next change."""
        return self.current + 1 if self.grows and self.is_careful else self.wanted


def decide(
    scale: ReplicaScale,
    current: int,
    history: Sequence[LoadSample],
    settings: Autoscaling,
    *,
    now_s: float,
    is_short: bool = False,
) -> ReplicaDecision:
    """The number of replicas from now on.

    Args:
        scale: The bounds.
        current: As many there are.
        history: The samples so far, the oldest first.
        settings: Delays and occupancy.
        now_s: The present, on the samples' clock.
        is_short: Something else found no room.
    """
    unpaid_s = min(settings.upscale_delay_s, UNPAID_S) if is_short else UNPAID_S
    gain = _gain(_window(history, now_s, unpaid_s)) if scale.role is Role.DRAFTER else None
    if gain is not None and gain < LEAST_GAIN and current > scale.least:
        return ReplicaDecision(
            current=current,
            wanted=scale.least,
            reason=f"of each token {gain:.2f} was theirs in the last {unpaid_s:g} s: they do not pay",
        )
    recent = _window(history, now_s, settings.upscale_delay_s)
    needed = min((_needed(one, settings.target_occupancy) for one in recent), default=0)
    count = min(needed, scale.most)
    if count > current and (gain is None or gain >= WORTH_ADDING):
        return ReplicaDecision(current=current, wanted=count, reason=_load(recent[-1], current))
    past = _window(history, now_s, settings.downscale_delay_s)
    occupancy = settings.target_occupancy * (1.0 - TOLERANCE)
    needed = max((_needed(one, occupancy) for one in past), default=current)
    count = max(needed, scale.least)
    if count < current:
        most = max(one.sessions + one.waiting for one in past)
        delay_s = settings.downscale_delay_s
        return ReplicaDecision(
            current=current,
            wanted=count,
            reason=f"at most {most} texts at a time in the last {delay_s:g} s",
        )
    return ReplicaDecision(current=current, wanted=current)


def _window(history: Sequence[LoadSample], now_s: float, length_s: float) -> list[LoadSample]:
    """The samples of the last seconds; none if that is longer than has been looked."""
    since_s = now_s - length_s
    if not history or history[0].at_s > since_s:
        return []
    return [one for one in history if one.at_s >= since_s]


def _needed(sample: LoadSample, occupancy: float) -> int:
    return math.ceil((sample.sessions + sample.waiting) / (sample.slots * occupancy))


def _gain(window: Sequence[LoadSample]) -> float | None:
    """Tokens that drafters proposed in each token committed; None if there were too few to tell."""
    tokens = sum(one.tokens for one in window)
    return sum(one.gained for one in window) / tokens if tokens >= JUDGED_TOKENS else None


def _load(sample: LoadSample, replicas: int) -> str:
    waiting = f" and {sample.waiting} wait" if sample.waiting else ""
    slots = replicas * sample.slots
    return f"{sample.sessions} texts run{waiting}, with {slots} slot{'s' if slots > 1 else ''}"
