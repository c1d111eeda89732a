"""Whether drafters work at all, at the load that there is.

What drafting costs beside the target's passes (cores and memory that drafters share with it, messages) no pass shows, so it is
measured: the speed of rounds while drafters work and while they rest, each in units of what plain decoding took in the model for as many
sessions when it was timed. The faster way goes on; now and then the other one is tried for some rounds. What trying costs comes out of a
budget, one token in a hundred, so a way that is far worse is tried seldom, and one that is nearly as good often. For each load (sessions in
powers of two) the answer is its own. Speeds change at once when a text becomes hard to foresee or a core is lost: rounds before a change that
chance does not explain are forgotten (`speed.py`), and what is known of the way that rests is its last trial. Pure: rounds are pushed
in, no clock is read.
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
    """What the last trial has cost, or what one of the way that was left would cost by its speed."""
    trial: int = 0
    """Rounds left of a running one."""
    tried: list[float] = field(default_factory=list)
    """Speeds of its rounds so far."""
    unjudged: int = 0
    """How many of them came before those that are judged."""
    lost: float = 0.0
    """What they have cost; before plain decoding ran, what drafting has."""

    @property
    def is_known(self) -> bool:
        """It has lasted for as many rounds as a trial."""
        return self.plain.weight + self.drafted.weight >= PROBE_ROUNDS

    @property
    def resting(self) -> Speed:
        """What is known of the way that is tried now and then."""
        return self.plain if self.drafts else self.drafted

    @property
    def judged(self) -> list[float]:
        """Speeds of the rounds of a trial that count."""
        return self.tried[self.unjudged :] if self.trial < PROBE_ROUNDS - 1 else []

    def pay(self) -> None:
        """Takes what the trial has cost out of the budget: a round at least, for drafters are woken or sent to rest, and no more than the
        budget may grow to, or a pause in a trial would make it the last one."""
        self.trial = 0
        self.price = min(max(self.lost, 1.0), ROUNDS)
        self.budget -= self.price

    def pay_more(self, lost: float) -> None:
        """Takes what came after the trial out of it, too."""
        before, self.price = self.price, min(max(self.price + lost, 1.0), ROUNDS)
        self.budget -= self.price - before


class Mode:
    """Decides before each round whether drafters work."""

    def __init__(self) -> None:
        self._loads: dict[int, _Load] = {}
        self._load = self._of(1)
        self._latest = self._load
        self._after = 0
        """Rounds for which what follows a trial of `_latest` is its cost and nothing else: passes that had begun, texts to be read."""

    def enter(self, num_sessions: int) -> bool:
        """Whether drafters work in the next round.

        Args:
            num_sessions: Sessions that decode and may speculate; at least 1.
        """
        load = self._of(num_sessions)
        if load is not self._load:
            # A load that has changed ends a trial, which is no judgement: its rounds are added to what was known. It is paid for, or loads that
            # change every few rounds would be tried in each of them.
            if self._load.trial and self._load.tried:
                for speed in self._load.judged:
                    self._load.resting.observe(speed)
                self._pay(self._load)
            self._load.trial = 0
            if not load.is_known:
                # A load that lasts for a round or two, as when requests end and others begin, wakes nobody. The fewer sessions, the sooner
                # drafting pays: where it does not for fewer, it will not for more.
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
        here, there = (load.drafted, load.plain) if load.drafts else (load.plain, load.drafted)
        if self._after:
            self._after -= 1
            self._latest.pay_more((here.mean - speed) * rounds if here.weight else 0.0)
            return
        if not load.trial:
            # Plain decoding commits so many tokens in a round's worth.
            plain = load.plain.mean if load.plain.weight else min(load.drafted.mean, 1.0)
            load.budget = min(load.budget + PROBE_SHARE * plain * rounds, ROUNDS)
            has_changed = here.observe(speed)
            if here.is_time and self._judge(load):
                return
            # What has become slower than the other way is thought to be makes a trial of that one a gain, if it is true.
            is_slow = has_changed and here.mean < there.mean
            if load.drafts and not there.weight:
                # Plain decoding that never ran is thought to be as fast as it was timed. Looked at after eight rounds, or once as many are lost.
                # Twice the error: these rounds may be those of drafters that begin.
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
            # By itself: what was known before is of other texts. Where no round of it counts, what came instead is what the other way gives now.
            there.forget()
            for tried in load.judged or load.tried:
                there.observe(tried)
            self._pay(load)
            if self._judge(load):
                self._after = 0

    def _pay(self, load: _Load) -> None:
        """A trial has ended."""
        load.pay()
        self._latest, self._after = load, PROBE_ROUNDS

    def _judge(self, load: _Load) -> bool:
        """Changes the way that goes on if the other one is faster beyond doubt, and by as much as trials cost. Returns whether it did."""
        here, there = (load.drafted, load.plain) if load.drafts else (load.plain, load.drafted)
        is_slower = there.mean > (1.0 + PROBE_SHARE) * here.mean + math.hypot(
            here.error, there.error
        )
        if is_slower:
            load.drafts = not load.drafts
            load.price = min(max(PROBE_ROUNDS * (there.mean - here.mean), 1.0), MOST_LOST)
            load.budget = max(load.budget, SOON)
        return is_slower
