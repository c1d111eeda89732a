"""Whether drafters work at all, at the load that there is.

What drafting costs beside the target's passes (cores and memory that drafters share with it, messages) no pass shows, so it is
measured: the speed of rounds while drafters work and while they rest, each in units of what the cost model says plain decoding takes
for the same sessions. The faster way goes on; now and then the other one is tried for some rounds. What trying costs comes out of a
budget, one token in a hundred, so a way that is far worse is tried seldom, and one that is nearly as good often. For each load (sessions in
powers of two) the answer is its own. Pure: rounds are pushed in, no clock is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

PROBE_SHARE: Final = 0.01
"""Part of all tokens that trying the other way may cost."""

PROBE_ROUNDS: Final = 8
"""Rounds of one trial, the first not counted: passes of drafters are still running, or begin anew. More find out more for the same
price less often."""

ROUNDS: Final = 256
"""Rounds that are remembered of each way."""

MOST_LOST: Final = PROBE_SHARE * ROUNDS
"""Rounds' worth of plain decoding after which a trial is ended: what the budget gets in the rounds that are remembered."""


@dataclass(slots=True)
class Speed:
    """Mean speed of one way, plain decoding being 1, and how sure that is."""

    weight: float = 0.0
    mean: float = 0.0
    square: float = 0.0

    def observe(self, speed: float) -> None:
        """Takes in a round."""
        self.weight = min(self.weight + 1.0, ROUNDS)
        self.mean += (speed - self.mean) / self.weight
        self.square += (speed * speed - self.square) / self.weight

    @property
    def error(self) -> float:
        """Standard error of the mean; infinite before there are two rounds."""
        if self.weight < 2.0:
            return float("inf")
        return math.sqrt(max(self.square - self.mean**2, 0.0) / (self.weight - 1.0))


@dataclass(slots=True)
class _Load:
    """What is known about one load."""

    drafts: bool = True
    """The way that goes on."""
    plain: Speed = field(default_factory=Speed)
    drafted: Speed = field(default_factory=Speed)
    budget: float = 0.5
    """Rounds' worth of plain decoding that trying may cost; some to begin with, so that both ways are known soon."""
    price: float = 1.0
    """What the last trial has cost."""
    trial: int = 0
    """Rounds left of a running one."""
    length: int = 0
    """Its rounds so far, and what they have cost."""
    lost: float = 0.0


class Mode:
    """Decides before each round whether drafters work."""

    def __init__(self) -> None:
        self._loads: dict[int, _Load] = {}
        self._load = self._of(1)

    def enter(self, num_sessions: int) -> bool:
        """Whether drafters work in the next round.

        Args:
            num_sessions: Sessions that decode and may speculate; at least 1.
        """
        load = self._of(num_sessions)
        if load is not self._load:
            # A load that has changed says nothing about a trial.
            self._load.trial, self._load = 0, load
        return load.drafts != (load.trial > 0)

    def _of(self, num_sessions: int) -> _Load:
        size = max(num_sessions - 1, 0).bit_length()
        load = self._loads.get(size)
        if load is None:
            # The fewer sessions, the sooner drafting pays: where it does not for fewer, it will not for more.
            smaller = (self._loads[other] for other in self._loads if other < size)
            load = self._loads[size] = _Load(drafts=all(known.drafts for known in smaller))
        return load

    def observe(self, speed: float, rounds: float, *, had_candidates: bool) -> None:
        """Takes in one round that ran as `enter` said.

        Args:
            speed: Tokens over those that plain decoding was expected to commit in its time.
            rounds: That time, in rounds of plain decoding.
            had_candidates: Some session had candidates. Drafters that were woken first run what they have missed, which a trial
                pays for and does not judge.
        """
        load = self._load
        is_trial = load.trial > 0
        drafted = load.drafts != is_trial
        if not is_trial:
            (load.drafted if drafted else load.plain).observe(speed)
            load.budget = min(load.budget + PROBE_SHARE * rounds, ROUNDS)
            if load.budget >= load.price:
                load.trial, load.lost, load.length = PROBE_ROUNDS, 0.0, 0
            return
        here = load.drafted if load.drafts else load.plain
        load.lost += (here.mean - speed) * rounds
        load.length += 1
        if had_candidates or not drafted:
            load.trial -= 1
            if load.trial < PROBE_ROUNDS - 1:
                (load.drafted if drafted else load.plain).observe(speed)
        if load.trial == 0 or load.lost > MOST_LOST or load.length >= ROUNDS:
            load.trial = 0
            load.price = max(load.lost, 1.0)
            load.budget -= load.price
            self._judge(load)

    def _judge(self, load: _Load) -> None:
        """Changes the way that goes on if the other one is faster, beyond doubt or by the better of the two guesses."""
        here, there = (load.drafted, load.plain) if load.drafts else (load.plain, load.drafted)
        doubt = (here.error**2 + there.error**2) ** 0.5
        if there.mean > here.mean + min(doubt, there.mean):
            load.drafts = not load.drafts
