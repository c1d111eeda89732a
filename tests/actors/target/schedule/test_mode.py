"""Whether drafters work: the faster way goes on, and finding out which it is costs next to nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from outrider.actors.target.schedule.mode import Mode
from outrider.actors.target.schedule.speed import PROBE_SHARE, ROUNDS, Speed


@dataclass
class Load:
    """A target whose rounds commit so many tokens a session, in so many times the time of a plain one."""

    drafted_tokens: float
    drafted_rounds: float
    noise: float = 0.3
    """Spread of tokens."""
    sessions: int = 4
    sleeps: int = 2
    """Rounds without candidates after drafters were woken."""

    def __post_init__(self) -> None:
        self.rng = random.Random(1)
        self.awake = 0
        self.time = 0.0
        """In rounds of plain decoding."""
        self.tokens = 0.0
        """Of a session."""
        self.drafted = 0
        self.turns = 0

    @property
    def speed(self) -> float:
        """Of drafting; plain decoding is 1."""
        return self.drafted_tokens / self.drafted_rounds

    def run(self, mode: Mode, rounds: int) -> float:
        """Runs some rounds; returns the mean speed."""
        time, tokens, last = self.time, self.tokens, None
        for _ in range(rounds):
            drafts = mode.enter(self.sessions)
            self.turns += last is not None and drafts != last
            last = drafts
            self.awake = self.awake + 1 if drafts else 0
            self.drafted += drafts
            seconds, committed, has = 1.0, 1.0, False
            if drafts:
                has = self.awake > self.sleeps
                seconds = self.drafted_rounds
                if has:
                    committed = max(1.0, self.rng.gauss(self.drafted_tokens, self.noise))
            self.time += seconds
            self.tokens += committed
            mode.observe(committed / seconds, seconds, is_caught_up=has)
        return (self.tokens - tokens) / (self.time - time)


@pytest.mark.parametrize("speed", [0.1, 0.5, 0.8, 0.95])
def test_a_worse_way_is_left_and_costs_next_to_nothing(speed: float) -> None:
    """To begin with some ten rounds' worth, and one in a hundred ever after."""
    load, mode = Load(2.0 * speed, 2.0, noise=0.1), Mode()
    load.run(mode, 400)
    assert load.time - load.tokens < 15.0
    load.drafted = 0
    late = load.run(mode, 20_000)
    assert late > 1.0 - 1.5 * PROBE_SHARE
    assert load.drafted < 20_000 / 4, "drafters rest but for trials"


@pytest.mark.parametrize(("rounds", "drafted"), [(3.0, 6), (4.0, 4), (30.0, 2)])
def test_drafters_that_begin_far_too_slow_are_left_once_eight_rounds_are_lost(
    rounds: float, drafted: int
) -> None:
    """Not after eight of theirs, each as long as many plain ones: drafters may share the target's device, or its one core."""
    load, mode = Load(1.5, rounds, noise=0.1, sleeps=0), Mode()
    load.run(mode, 60)
    assert load.drafted == drafted


def test_one_slow_round_at_the_start_leaves_nobody() -> None:
    """Drafters stand still while their passes are recorded."""
    load, mode = Load(3.0, 1.5, sleeps=0), Mode()
    assert mode.enter(load.sessions)
    mode.observe(0.05, 20.0, is_caught_up=True)
    load.run(mode, 60)
    assert load.drafted > 45


@pytest.mark.parametrize("speed", [1.05, 1.3, 3.0])
def test_a_better_way_goes_on_and_the_other_is_seldom_tried(speed: float) -> None:
    """Plain decoding is tried as cheaply."""
    load, mode = Load(1.5 * speed, 1.5), Mode()
    load.run(mode, 400)
    late = load.run(mode, 20_000)
    assert late > speed * (1.0 - 2.0 * PROBE_SHARE)


def test_a_way_that_is_far_worse_is_tried_more_seldom_than_one_that_is_nearly_as_good() -> None:
    """Both cost the same."""
    trials = {}
    for speed in (0.2, 0.9):
        load, mode = Load(2.0 * speed, 2.0, noise=0.1, sleeps=0), Mode()
        load.run(mode, 1_000)
        load.drafted = 0
        load.run(mode, 20_000)
        trials[speed] = load.drafted
    assert 0 < 2 * trials[0.2] < trials[0.9]


@pytest.mark.parametrize(("before", "after"), [(0.5, 2.0), (2.0, 0.5)])
def test_what_becomes_better_is_found(before: float, after: float) -> None:
    """Drafters that had to rest, and drafters that no longer pay."""
    load, mode = Load(1.5 * before, 1.5), Mode()
    load.run(mode, 3_000)
    load.drafted = 0
    load.run(mode, 300)
    assert (load.drafted > 150) == (before > 1.0)
    load.drafted_tokens = 1.5 * after
    load.run(mode, 3_000)
    assert load.run(mode, 3_000) > max(after, 1.0) * (1.0 - 3.0 * PROBE_SHARE)


def test_equally_good_ways_do_not_take_turns() -> None:
    """Changing costs something itself, and users see it."""
    load, mode = Load(2.0, 2.0, noise=0.5), Mode()
    load.run(mode, 1_000)
    load.turns = 0
    assert load.run(mode, 10_000) > 1.0 - 3.0 * PROBE_SHARE
    assert load.turns < 10_000 / 20


def test_every_load_has_its_own_answer() -> None:
    """Drafters pay for one session and not for sixteen; nobody has to find that out again at each change."""
    mode = Mode()
    few, many = Load(3.0, 1.5, sessions=1), Load(1.5, 3.0, sessions=16)
    for _ in range(3):
        few.run(mode, 400)
        many.run(mode, 400)
    assert mode.enter(1)
    assert not mode.enter(16)
    assert few.run(mode, 300) > 1.9
    assert many.run(mode, 300) > 0.95


def test_a_load_that_was_never_met_begins_like_the_nearest() -> None:
    """Seventeen sessions are not tried as if nothing were known."""
    mode = Mode()
    Load(1.5, 3.0, sessions=16).run(mode, 600)
    assert not mode.enter(33)


def test_a_load_that_lasts_for_a_round_changes_nothing() -> None:
    """Requests end and others begin: with one session for a moment drafters are not woken, even if that was so often."""
    mode = Mode()
    many, one = Load(1.5, 3.0, sessions=16), Load(1.5, 3.0, sessions=1)
    many.run(mode, 600)
    for _ in range(20):
        one.run(mode, 1)
        many.run(mode, 100)
    assert one.drafted <= 8


def test_what_follows_a_trial_is_part_of_its_cost() -> None:
    """Drafters that rest again finish what they had begun, beside the next rounds; so they are tried less often."""
    mode, lost, behind = Mode(), 0.0, 0
    for count in range(30_000):
        drafts = mode.enter(4)
        behind = 6 if drafts else max(behind - 1, 0)
        time = 3.0 if behind else 1.0
        lost += time - 1.0
        mode.observe(1.0 / time, time, is_caught_up=drafts)
        if count == 1_000:
            lost = 0.0
    assert lost < 1.5 * PROBE_SHARE * 30_000


@pytest.mark.parametrize(("before", "after"), [(1.9, 0.8), (2.2, 0.5), (1.3, 0.3)])
def test_a_speed_that_falls_is_noticed_within_some_rounds(before: float, after: float) -> None:
    """A core is lost, or a text becomes hard to foresee: of two hundred rounds fewer than one in fifteen is lost."""
    load, mode = Load(1.5 * before, 1.5, noise=1.0), Mode()
    load.run(mode, 2_000)
    load.drafted_tokens, load.noise = 1.5 * after, 0.1
    assert load.run(mode, 200) > 1.0 - 1.0 / 15.0


def test_a_trial_without_candidates_is_judged_by_what_came_instead() -> None:
    """Not by what drafters did long ago, when they were faster."""
    load, mode = Load(1.2, 1.5, noise=0.1), Mode()
    load.run(mode, 1_000)
    assert not mode.enter(load.sessions)
    load.sleeps = 10_000
    assert load.run(mode, 3_000) > 1.0 - 3.0 * PROBE_SHARE


@pytest.mark.parametrize("speed", [0.3, 0.8, 1.5])
@pytest.mark.parametrize("stay", [4, 8])
def test_loads_that_change_every_few_rounds_are_not_tried_in_each_of_them(
    speed: float, stay: int
) -> None:
    """A trial that another load ends is paid for like any other."""
    mode = Mode()
    loads = [Load(2.0 * speed, 2.0, noise=0.1, sessions=sessions) for sessions in (4, 5)]
    for turn in range(12_000 // stay):
        loads[turn % 2].run(mode, stay)
    tokens, time = sum(load.tokens for load in loads), sum(load.time for load in loads)
    assert tokens / time > max(speed, 1.0) * (1.0 - 4.0 * PROBE_SHARE)


@pytest.mark.parametrize("rounds_later", [0, 12])
def test_a_pause_in_a_trial_does_not_make_it_the_last_one(rounds_later: int) -> None:
    """Nor one right behind it. However long it was, drafters that have become better are found some time."""
    load, mode = Load(1.0, 2.0), Mode()
    load.run(mode, 1_000)
    for _ in range(1_000):
        if mode.enter(load.sessions):
            break
        load.run(mode, 1)
    for _ in range(rounds_later):
        load.run(mode, 1)
    assert mode.enter(load.sessions) == (rounds_later == 0)
    mode.observe(1.0 / 5_000.0, 5_000.0, is_caught_up=True)
    load.drafted_tokens = 4.0
    load.run(mode, 60_000)
    assert load.run(mode, 1_000) > 1.8


def test_a_trial_that_gains_is_not_outweighed_by_earlier_ones() -> None:
    """They were of other texts: drafters that pay for this one go to work, and do not rest for some hundred rounds more."""
    mode, hard, easy = Mode(), [0.7] * 8, [0.7, 1.5, 1.6, 0.9, 2.2, 2.0, 0.9, 1.5]
    for _ in range(8):
        assert mode.enter(1)
        mode.observe(0.5, 1.0, is_caught_up=True)
    for speeds in (hard, hard, hard, easy):
        for _ in range(ROUNDS):
            if mode.enter(1):
                break
            mode.observe(0.94, 1.0, is_caught_up=False)
        for speed in speeds:
            assert mode.enter(1)
            mode.observe(speed, 1.0, is_caught_up=True)
        assert mode.enter(1) == (speeds is easy)


def test_what_was_before_a_change_stays_forgotten() -> None:
    """However many rounds come after it, and wherever in what is kept it was."""
    for before in range(200, 700, 20):
        rng, speed = random.Random(before), Speed()
        for _ in range(before):
            speed.observe(rng.gauss(1.0, 0.1))
        since = None
        for count in range(1, 400):
            has_changed = speed.observe(rng.gauss(1.25, 0.3))
            since = count if has_changed and since is None else since
            if since is not None:
                assert speed.weight <= min(count + 8, ROUNDS)
        assert since is not None
