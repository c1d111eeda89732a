"""Whether drafters work is what the plain loop says, whatever rounds came before."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.actors.target.schedule.plain_mode import PlainRound, modes
from tests.actors.target.state.chaos import engine
from tests.actors.target.state.passing import Sessions

from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.next_pass import Planner
from outrider.actors.target.schedule.mode import Mode
from outrider.actors.target.state.passes import Pass

SPEEDS = (0.2, 0.6, 0.9, 0.98, 1.0, 1.02, 1.1, 1.5, 2.5)


class Weather:
    """How fast both ways are; changes now and then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.noise = rng.choice([0.02, 0.1, 0.4])
        self.steadiness = rng.choice([8, 60, 400])
        """Rounds for which a load stays, in the mean."""
        self.sleeps = rng.choice([0, 1, 3, 30, 10_000])
        """Rounds after which drafters that were woken have caught up."""
        self.changes = rng.choice([0.0, 0.003, 0.01])
        """Probability that speeds become others with a round."""
        self.drafted = 1
        self.awake = 0
        self._change()

    def _change(self) -> None:
        self.speeds = {False: self.rng.choice((1.0, 2.0, 4.0, self.rng.choice(SPEEDS)))}
        self.speeds[True] = self.speeds[False] * self.rng.choice(SPEEDS)

    def pass_by(self) -> None:
        """Another round begins."""
        if self.rng.random() < 1.0 / self.steadiness:
            self.drafted = self.rng.choice([1, 2, 3, 4, 5, 16])
        if self.rng.random() < self.changes:
            self._change()

    def round(self, drafts: bool, *, sessions: int, drafted: int, plain_s: float) -> PlainRound:
        """What it comes to."""
        self.awake = self.awake + 1 if drafts else 0
        has = self.awake > self.sleeps and self.rng.random() < 0.9
        speed = self.speeds[True] if drafts and has else min(self.speeds.values())
        if not drafts:
            speed = self.speeds[False]
        tokens = sessions * (1 if not drafts else self.rng.randint(1, 4))
        # Never twice the same, so that no choice hangs on the last digit.
        speed = max(self.rng.gauss(speed, self.noise), self.rng.uniform(0.03, 0.07))
        if self.rng.random() < 0.002:
            # A pause.
            speed /= 10.0 ** self.rng.uniform(1.0, 5.0)
        return PlainRound(
            drafted=drafted,
            sessions=sessions,
            tokens=tokens,
            seconds=tokens / sessions * plain_s / speed,
            plain_s=plain_s,
            caught_up=drafts and has,
        )


def history(seed: int) -> tuple[list[PlainRound], list[bool]]:
    """Rounds that ran as the fast code said, and what it said."""
    rng = random.Random(seed)
    weather, mode = Weather(rng), Mode()
    rounds: list[PlainRound] = []
    said: list[bool] = []
    for _ in range(rng.choice([50, 200, 500, 900, 900, 2_000])):
        weather.pass_by()
        drafts = mode.enter(weather.drafted)
        said.append(drafts)
        sessions = weather.drafted + rng.randint(0, 1)
        one = weather.round(drafts, sessions=sessions, drafted=weather.drafted, plain_s=0.01)
        rounds.append(one)
        lasted = one.seconds / one.plain_s
        mode.observe(one.tokens / one.sessions / lasted, lasted, is_caught_up=one.caught_up)
    said.append(mode.enter(weather.drafted))
    return rounds, said


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_modes_are_those_of_the_plain_loop(start: int) -> None:
    """Over random rounds: noisy and steady speeds, loads that stay and loads that change, drafters that wake late or never."""
    for seed in range(start, start + 50):
        rounds, said = history(seed)
        assert modes(rounds, rounds[-1].drafted) == said, seed


def test_both_ways_are_met() -> None:
    """Half of all rounds draft, more or less, and most histories know both ways."""
    histories = [history(seed)[1] for seed in range(20)]
    rounds = [drafts for said in histories for drafts in said]
    assert 0.2 < sum(rounds) / len(rounds) < 0.8
    assert sum(len(set(said)) > 1 for said in histories) > 15


class Scene:
    """A target whose sessions come, go and read prompts, and whose clock is this one's."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        made = Sessions(engine(1))
        self.state = made.state
        self.state.settings = replace(self.state.settings, adaptive=True)
        self.state.join_drafter("d", takes_turns=False)
        self.state.cost.set_curve({1: 0.01, 101: 0.02})
        self.rows = [
            made.open(
                Sampling(seed=number, max_tokens=64, ignore_eos=True),
                committed=(1, 2, 3) * 4,
                speculation=Speculation(enabled=number > 0),
            )
            for number in range(4)
        ]
        table = self.state.table
        table.joined_SD[self.rows, self.state.number_of("d")] = True
        table.cached_S[self.rows] = table.lengths_S[self.rows] - 1
        self.planner = Planner(self.state)
        self.weather = Weather(rng)
        self.now = self.last = 1.0
        """The second: when the last pass was over."""
        self.goes_on = False
        """A round that counts may follow at once."""

    def run(self, count: int) -> tuple[list[PlainRound], list[bool]]:
        """Runs passes; returns what they came to, and whether drafters worked."""
        rounds: list[PlainRound] = []
        said: list[bool] = []
        for _ in range(count):
            self.weather.pass_by()
            if self.rng.random() < 0.02:
                self._idle()
            if self.rng.random() < 0.03:
                for row in self.rows:
                    self.state.table.started_S[row] = self.rng.random() < 0.5
            if not any(self.state.table.started_S[self.rows]):
                self.state.table.started_S[self.rng.choice(self.rows)] = True
            one, drafts = self._round()
            rounds.append(one)
            said.append(drafts)
        return rounds, said

    def _idle(self) -> None:
        """Nothing runs for a moment."""
        table = self.state.table
        started = table.started_S.copy()
        table.started_S[:] = False
        assert self.planner.plan(self.now) == float("inf")
        table.started_S[:] = started
        self.now += 0.5
        self.goes_on = False

    def _round(self) -> tuple[PlainRound, bool]:
        table, rows = (
            self.state.table,
            [row for row in self.rows if self.state.table.started_S[row]],
        )
        lengths = table.lengths_S[self.rows]
        reads = self.rng.random() < 0.03
        if reads:
            table.cached_S[rows[-1]] = 0
        drafted = sum(row != self.rows[0] for row in (rows[:-1] if reads else rows))
        self.now += self.rng.choice((0.0, self.rng.uniform(0.0, 0.01)))
        pass_ = self.planner.plan(self.now)
        assert isinstance(pass_, Pass)
        one = self.weather.round(pass_.drafting, sessions=len(rows), drafted=drafted, plain_s=0.011)
        table.heard_S[self.rows] = lengths - (0 if one.caught_up else 1)
        began, self.now = self.last, self.now + one.seconds
        # As if its shape had been recorded with it: nothing is learned from it.
        is_usual = self.rng.random() > 0.05
        known = [self.state.cost.predict(count) for count in (1, 9)]
        self.planner.booked(
            pass_,
            model_s=0.9 * one.seconds,
            now=self.now,
            committed=int(one.tokens),
            is_usual=is_usual,
        )
        assert is_usual or [self.state.cost.predict(count) for count in (1, 9)] == known
        table.cached_S[self.rows] = lengths - 1
        self.last = self.now
        one = replace(
            one,
            seconds=self.last - began,
            plain_s=self.state.cost.timed_s(len(rows)),
            counts=self.goes_on and not reads and is_usual,
        )
        self.goes_on = True
        return one, pass_.drafting


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_the_planner_tells_rounds_as_they_were(start: int) -> None:
    """Of all sessions, those without drafters included; but none with prompts or a recording, and none behind a pause."""
    for seed in range(start, start + 10):
        rounds, said = Scene(seed).run(300)
        assert modes(rounds, rounds[-1].drafted)[:-1] == said, seed
