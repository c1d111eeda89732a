"""What the governor gets to see."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest
from tests.actors.pair import Pair, Wire

from outrider.actors.engine.tabular import random_table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.control import CATCH_UP_ROUNDS
from outrider.actors.target.events import DrafterLeft
from outrider.actors.target.governor import Governor
from outrider.actors.target.trials import LATE_ROUNDS, PLAIN_ROUNDS, SETTLING_ROUNDS

TARGET = random_table(12, 2, seed=9, concentration=0.3)
NUM_SESSIONS = 8
REST = 600
"""Rounds. What drafters miss meanwhile takes them many rounds to run."""


class Recording(Governor):
    """Speculates as it is told, and keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = True
        self.seen: list[float] = []
        self.prompts: list[float] = []
        self.behind: list[float] = []
        """Work of rounds in which drafters were catching up."""
        self.late: list[bool | None] = []
        self.loads: list[int] = []

    @property
    def speculates(self) -> bool:
        """As told."""
        return self.wanted

    def enter(self, num_sessions: int) -> None:
        """Keeps the load."""
        self.loads.append(num_sessions)
        super().enter(num_sessions)

    def observe(
        self,
        tokens: float,
        seconds: float,
        *,
        prompts: float = 0.0,
        is_late: bool | None = None,
        is_counted: bool = True,
    ) -> None:
        """Keeps the work, and whether candidates came late."""
        (self.seen if is_counted else self.behind).append(tokens)
        self.prompts.append(prompts)
        if is_counted:
            self.late.append(is_late)


def rested(pair: Pair, governor: Recording) -> None:
    """Sessions whose drafters worked, then rested for long, and are woken in the next step."""
    for session in range(NUM_SESSIONS):
        sampling = Sampling(seed=session, max_tokens=3000, temperature=0.9)
        pair.open(session, sampling, Speculation())
    for wanted, rounds in ((True, 10), (False, REST)):
        governor.wanted = wanted
        for _ in range(rounds):
            pair.step(1)
    governor.wanted = True
    governor.seen.clear()


def test_rounds_count_once_woken_drafters_have_caught_up() -> None:
    """Otherwise each comparison after a long rest would be one with drafters that are busy with the past."""
    governor = Recording()
    pair = Pair(TARGET, TARGET, governor=governor)
    rested(pair, governor)
    for _ in range(CATCH_UP_ROUNDS):
        pair.step(1)
    seen = governor.seen
    assert len(seen) > 40
    usual = sum(seen[-20:]) / 20
    plain = pair.target.cost.tokens_worth(NUM_SESSIONS, NUM_SESSIONS)
    assert usual > 1.5 * plain
    assert sum(seen[:8]) / 8 > 0.75 * usual
    assert pair.draft.stats.resyncs == 0


def test_drafters_that_stay_silent_do_not_stop_the_comparison() -> None:
    """After a while rounds count whatever comes."""
    governor = Recording()
    is_silent = False

    def meddle(wire: Wire) -> Wire:
        return [] if is_silent else wire

    pair = Pair(TARGET, TARGET, governor=governor, meddle=meddle)
    rested(pair, governor)
    is_silent = True
    for _ in range(3 * CATCH_UP_ROUNDS):
        pair.step(1)
        if governor.seen:
            break
    assert governor.seen


def delayed(steps: int) -> Callable[[Wire], Wire]:
    """A network that hands on the drafter's messages some target passes later."""
    under_way: deque[Wire] = deque([] for _ in range(steps))

    def meddle(wire: Wire) -> Wire:
        under_way.append(wire)
        return under_way.popleft()

    return meddle


def test_the_governor_is_told_of_candidates_that_come_too_late() -> None:
    """Behind a way of many passes; a drafter next door is never late."""
    shares = []
    for steps in (0, 24):
        governor = Recording()
        pair = Pair(TARGET, TARGET, governor=governor, meddle=delayed(steps))
        sampling = Sampling(seed=1, max_tokens=900, temperature=1.0)
        pair.open(0, sampling, Speculation())
        for _ in range(120):
            pair.step()
        shares.append(governor.late.count(True) / len(governor.late))
    assert shares[0] == 0.0
    assert shares[1] > 0.6


def test_candidates_that_are_in_time_but_not_worth_their_rows_are_not_late() -> None:
    """A text that is hard to foresee, or rows that are dear, are no reason to send a drafter next door to rest."""
    governor = Recording()
    pair = Pair(TARGET, TARGET, governor=governor)
    pair.open(0, Sampling(seed=1, max_tokens=900, temperature=1.0), Speculation())
    pair.target.cost.set_curve({1: 0.001, 2: 1.0, 64: 64.0})
    for _ in range(120):
        pair.step()
    assert governor.late.count(True) == 0
    assert governor.late.count(False) > 60


def test_drafters_too_far_away_soon_rest_and_are_sent_nothing() -> None:
    """What they propose is stale when it arrives, so after 64 rounds they cost nothing."""
    way = 24
    governor, delay = Governor(), delayed(way)
    sent: list[int] = []

    def meddle(wire: Wire) -> Wire:
        sent.append(len(wire))
        return delay(wire)

    pair = Pair(TARGET, TARGET, governor=governor, meddle=meddle)
    pair.open(0, Sampling(seed=1, max_tokens=900, temperature=1.0), Speculation())
    speculates = []
    begin = way + LATE_ROUNDS + 2 * (PLAIN_ROUNDS + SETTLING_ROUNDS)
    for _ in range(begin + 500):
        pair.step()
        speculates.append(governor.speculates)
    assert not governor.speculates
    assert sum(sent[:begin]) > 10
    # Now and then a trial asks for candidates; apart from those nothing is sent.
    resting = [i for i in range(begin, begin + 500) if not any(speculates[i - 4 : i + 1])]
    assert len(resting) > 450
    assert sum(sent[step] for step in resting) == 0


def test_rounds_with_prompts_count_with_what_the_prompts_took() -> None:
    """Under load nearly all rounds have some: left out, nothing would ever be compared. Prompts alone say nothing."""
    governor = Recording()
    pair = Pair(TARGET, TARGET, governor=governor)
    cost = pair.target.cost
    cost.set_curve({1: 1e-3, 64: 4e-3})
    cost.set_prompt_row(2e-5)
    sampling = Sampling(seed=1, max_tokens=400, temperature=1.0)
    pair.open(0, sampling, Speculation(), prompt=[1] * 90)
    assert governor.seen == []
    for _ in range(20):
        pair.step()
    assert governor.seen == pytest.approx([round(seen) for seen in governor.seen])
    assert governor.seen
    governor.seen.clear()
    pair.open(1, sampling, Speculation(), prompt=[2] * 90)
    assert len(governor.seen) == 1
    assert governor.prompts[-1] == pytest.approx(cost.prompts_worth(89), rel=0.05)
    committed = governor.seen[0] / cost.tokens_worth(1, 2)
    assert committed == pytest.approx(round(committed), abs=0.05)
    assert 2 <= round(committed) < 20


LONG = Sampling(seed=1, max_tokens=400, temperature=1.0)


def at_rest() -> tuple[Pair, Recording]:
    """A session whose drafter has just been sent to rest."""
    governor = Recording()
    pair = Pair(TARGET, TARGET, governor=governor)
    pair.open(0, LONG, Speculation())
    governor.wanted = False
    pair.step()
    assert pair.wanted == [False]
    return pair, governor


def counts_two_and_wakes(pair: Pair, governor: Recording) -> None:
    """Checks that two sessions make the load, and that drafters are wanted as soon as the governor says so."""
    for _ in range(5):
        pair.step()
    assert governor.loads[-1] == 2
    assert pair.wanted == [False]
    governor.wanted = True
    pair.step()
    assert pair.wanted == [False, True]


def test_sessions_that_wait_for_drafters_count_for_the_load() -> None:
    """While drafters rest none are attached to new sessions; were those not counted, drafters would never be tried again."""
    pair, governor = at_rest()
    pair.open(1, LONG, Speculation(), is_attached=False)
    pair.open(2, LONG, Speculation(enabled=False), is_attached=False)
    counts_two_and_wakes(pair, governor)


def test_a_drafter_that_is_lost_at_rest_is_wanted_again() -> None:
    """One that starts again connects when it is attached. Were it not wanted before it is connected, it never would be."""
    pair, governor = at_rest()
    pair.target.post(DrafterLeft(drafter="d"))
    pair.open(1, LONG, Speculation(), is_attached=False)
    counts_two_and_wakes(pair, governor)
