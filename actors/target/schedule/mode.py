"""Whether drafters work at all, at the load that there is.

Some costs of drafting show in no pass: cores and memory that drafters share with the target, and messages. So the speed of rounds is measured while drafters
work and while they rest, in units of plain decoding as its passes were timed at the start for as many sessions. The faster way goes on. Now and then the
other way is tried for some rounds. What trials cost comes out of a budget of one token in a hundred, so a way that is far slower is tried seldom, and one
that is nearly as fast often. Each load (sessions in powers of two) is decided by itself. Speeds change at once when a text becomes hard to foresee or a core
is lost: rounds before a change that chance does not explain are forgotten (`speed.py`). What is known of the way that rests is its last trial. Pure: rounds
are pushed in, no clock is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from outrider.actors.target.schedule.speed import PROBE_ROUNDS, PROBE_SHARE, ROUNDS, Speed

MOST_LOST: Final = PROBE_SHARE * ROUNDS
"""Rounds' worth of plain decoding after which a trial is ended: what the budget gets in the rounds that are remembered."""

SOON: Final = 0.5
"""Rounds' worth in the budget of a load that is new, or whose way has just changed, so that both ways are known soon."""


@dataclass(slots=True)
class _Load:
    """What is known about one load."""

    drafts: bool = True
    """The way that goes on."""
    plain: Speed = field(default_factory=Speed)
    drafted: Speed = field(default_factory=Speed)
    budget: float = SOON
    """Rounds' worth of plain decoding that trying may cost."""
    price: float = 1.0
    """What the last trial has cost. After a change of the way: what a trial of the way that was left would cost by its speed."""
    trial: int = 0
    """Rounds left of the trial that runs; 0: none runs."""
    tried: list[float] = field(default_factory=list)
    """Speeds of its rounds so far."""
    unjudged: int = 0
    """How many of them came before the first that is judged."""
    lost: float = 0.0
    """What they have cost; before plain decoding was ever tried, what drafting has cost."""

    @property
    def is_known(self) -> bool:
        """Whether it has had as many rounds as a trial."""
        return self.plain.weight + self.drafted.weight >= PROBE_ROUNDS

    @property
    def going(self) -> Speed:
        """What is known of the way that goes on."""
        return self.drafted if self.drafts else self.plain

    @property
    def resting(self) -> Speed:
        """What is known of the way that is tried now and then."""
        return self.plain if self.drafts else self.drafted

    @property
    def judged(self) -> list[float]:
        """Speeds of the rounds of a trial that count."""
        return self.tried[self.unjudged :] if self.trial < PROBE_ROUNDS - 1 else []

    def pay(self, lost: float) -> None:
        """Takes out of the budget what the last trial has cost, with so much more: a round at least, for drafters are woken or sent to rest, and
        no more than the budget may grow to, or a pause in a trial would make it the last one."""
        before, self.price = self.price, min(max(self.price + lost, 1.0), ROUNDS)
        self.budget -= self.price - before

    def judge(self) -> bool:
        """Changes the way that goes on if the other one is faster beyond doubt, and by as much as trials cost. Returns whether it did."""
        here, there = self.going, self.resting
        doubt = math.hypot(here.error, there.error)
        is_slower = there.mean > (1.0 + PROBE_SHARE) * here.mean + doubt
        if is_slower:
            self.drafts = not self.drafts
            self.price = min(max(PROBE_ROUNDS * (there.mean - here.mean), 1.0), MOST_LOST)
            self.budget = max(self.budget, SOON)
        return is_slower


class Mode:
    """Decides before each round whether drafters work."""

    def __init__(self) -> None:
        self._loads: dict[int, _Load] = {}
        self._load = self._of(1)
        self._latest = self._load
        self._after = 0
        """Rounds after a trial of `_latest` that still count as its cost: passes had begun, and texts are read."""

    def enter(self, num_sessions: int) -> bool:
        """Whether drafters work in the next round.

        Args:
            num_sessions: Sessions that decode and may speculate; at least 1.
        """
        load = self._of(num_sessions)
        if load is not self._load:
            # A change of the load ends a trial without a judgement: its rounds are added to what was known. It is paid for, or loads that
            # change every few rounds would begin a trial each time.
            if self._load.trial and self._load.tried:
                for speed in self._load.judged:
                    self._load.resting.observe(speed)
                self._end_trial(self._load)
            self._load.trial = 0
            if not load.is_known:
                # A new load goes on as the last one, so that a load of a round or two wakes nobody. Drafting pays sooner the fewer sessions
                # there are: where it does not pay for fewer, it does not for more.
                smaller = (
                    other for size, other in self._loads.items() if size < self._size(num_sessions)
                )
                load.drafts = self._load.drafts and all(other.drafts for other in smaller)
            self._load = load
        return load.drafts != (load.trial > 0)

    @staticmethod
    def _size(num_sessions: int) -> int:
        return max(num_sessions - 1, 0).bit_length()

    def _of(self, num_sessions: int) -> _Load:
        return self._loads.setdefault(self._size(num_sessions), _Load())

    def observe(self, speed: float, rounds: float, *, is_caught_up: bool) -> None:
        """Takes in one round that ran as `enter` said.

        Args:
            speed: Tokens over those that plain decoding would commit in its time, were it as fast as it was timed.
            rounds: That time, in rounds of plain decoding.
            is_caught_up: Drafters have answered for all sessions since they were woken. They first run what they have missed, which
                a trial pays for and does not judge; once they are caught up all rounds count.
        """
        load = self._load
        here, there = load.going, load.resting
        if self._after:
            self._after -= 1
            self._latest.pay((here.mean - speed) * rounds if here.weight else 0.0)
            return
        if not load.trial:
            # Plain decoding commits so many tokens in a round's worth.
            plain = load.plain.mean if load.plain.weight else min(load.drafted.mean, 1.0)
            load.budget = min(load.budget + PROBE_SHARE * plain * rounds, ROUNDS)
            has_changed = here.observe(speed)
            if here.is_time and load.judge():
                return
            # If this way has become slower than the other one is thought to be, a trial is expected to be a gain.
            is_slow = has_changed and here.mean < there.mean
            if load.drafts and not there.weight:
                # Plain decoding that never ran is thought to be as fast as it was timed. Compared after eight rounds, or once as many are lost.
                # Two standard errors, because drafters may just have begun.
                load.lost += (1.0 - speed) * rounds
                if here.is_time or load.lost > PROBE_ROUNDS:
                    is_slow = here.mean + 2.0 * here.error < 1.0
            if load.budget >= load.price or is_slow:
                load.trial, load.lost = PROBE_ROUNDS, 0.0
                load.tried.clear()
            return
        load.lost += (here.mean - speed) * rounds
        load.tried.append(speed)
        if is_caught_up or load.drafts or load.trial < PROBE_ROUNDS:
            load.trial -= 1
            if load.trial == PROBE_ROUNDS - 1:
                load.unjudged = len(load.tried)
        if load.trial == 0 or load.lost > MOST_LOST or len(load.tried) >= ROUNDS:
            # A trial is judged by itself: what was known before is of other texts. Where none of its rounds counts, all of them do.
            there.forget()
            for tried in load.judged or load.tried:
                there.observe(tried)
            self._end_trial(load)
            if load.judge():
                self._after = 0

    def _end_trial(self, load: _Load) -> None:
        """A trial is over, and is paid for."""
        load.trial, load.price = 0, 0.0
        load.pay(load.lost)
        self._latest, self._after = load, PROBE_ROUNDS
