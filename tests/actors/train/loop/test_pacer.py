"""How many steps fit: measured steps in, a schedule out."""

from __future__ import annotations

import math

import pytest

from outrider.actors.train.loop.budget import StepDecision
from outrider.actors.train.loop.pacer import Pacer
from outrider.actors.train.loop.schedule import Schedule

SCHEDULE = Schedule(steps=200, warmup=20, long_every=4)
"""Long rows at steps 1, 5, 9, ..."""


class Stage:
    """Runs steps against an allowance; a long one takes twice the time."""

    def __init__(self, allowance: float, minutes: float = 1.0) -> None:
        self.allowance, self.spent, self.done = allowance, 0.0, 0
        self.told: list[tuple[int, float]] = []
        self.pacer = Pacer(SCHEDULE, lambda: self.allowance - self.spent, minutes, self.tell)

    def tell(self, decision: StepDecision, seconds: float) -> None:
        """Notes an announcement."""
        self.told.append((decision.count, seconds))

    def run(self, steps: int, seconds: float = 1.0) -> None:
        """Takes at most `steps` steps."""
        while steps and self.done < self.pacer.schedule.steps:
            took = seconds * (2.0 if self.done % 4 == 1 else 1.0) + (5.0 if not self.done else 0.0)
            self.spent += took
            self.done += 1
            self.pacer.after(self.done, took)
            steps -= 1


def test_steps_are_what_fits_long_rows_in_proportion() -> None:
    """The slow first step does not count for the pace of 1.25 s: six steps and 100 s more."""
    stage = Stage(allowance=113.0)
    stage.run(6)
    decision = stage.pacer.decision()
    assert decision == StepDecision(count=6 + 80, of=200, minutes=1.0)
    assert stage.told == [(86, 80 * 1.25)]
    stage.run(1000)
    assert stage.done == 86
    assert stage.spent == pytest.approx(113.0, abs=2.0)


def test_the_rate_falls_to_its_end_where_training_ends() -> None:
    """Warm-up and decay are those of a schedule that was so short from the beginning."""
    stage = Stage(allowance=113.0)
    stage.run(6)
    assert stage.pacer.schedule == SCHEDULE.lasting(86)
    assert stage.pacer.schedule.rate(85) == pytest.approx(1 / (0.35 * 86))


def test_plenty_of_time_changes_nothing() -> None:
    """The recipe is an upper bound, and its schedule the very same."""
    stage = Stage(allowance=1000.0)
    stage.run(1000)
    assert stage.pacer.schedule is SCHEDULE
    assert stage.done == 200
    assert stage.pacer.decision() == StepDecision(count=200, of=200, minutes=1.0)


def test_without_a_bound_nothing_is_measured() -> None:
    """It is decided from the start."""
    stage = Stage(allowance=math.inf, minutes=0.0)
    assert stage.pacer.decision() == StepDecision(count=200, of=200, minutes=0.0)
    stage.run(1000)
    assert stage.done == 200
    assert stage.told == []


def test_no_time_at_all_leaves_one_step() -> None:
    """There is a model in the end, whatever it is worth."""
    stage = Stage(allowance=1.0)
    stage.run(1000)
    assert stage.done == 1


def test_a_machine_that_gets_slower_does_fewer_steps() -> None:
    """Three times slower after forty steps: the stage ends soon after its allowance, not at 2.3 times of it."""
    stage = Stage(allowance=113.0)
    stage.run(40)
    stage.run(1000, seconds=3.0)
    assert stage.done < 86
    assert 113.0 - 10.0 < stage.spent < 113.0 * 1.2


def test_a_machine_that_was_slow_for_a_moment_makes_up_for_it() -> None:
    """Measured at a third of its pace, 30 steps seem to fit; it does what the time allows after all."""
    stage = Stage(allowance=113.0)
    stage.run(6, seconds=3.0)
    assert stage.pacer.schedule.steps < 40
    stage.run(1000)
    assert stage.done > 65
    assert 113.0 * 0.85 < stage.spent < 113.0 * 1.1


def test_a_rate_that_falls_goes_on_falling() -> None:
    """Steps are not added once the decay has begun, however fast the machine has become."""
    stage = Stage(allowance=113.0)
    stage.run(70)
    stage.run(1000, seconds=0.01)
    assert stage.done == 86


def test_resuming_keeps_the_decision_of_the_same_bound() -> None:
    """While it fits the time; under another bound it is measured again."""
    saved = StepDecision(count=86, of=200, minutes=1.0)
    for minutes, allowance, steps in ((1.0, 60.0, 86), (2.0, 1000.0, 200)):
        stage = Stage(allowance=allowance, minutes=minutes)
        stage.done = 40
        stage.pacer.resume(40, saved)
        stage.run(1000)
        assert stage.done == steps


def test_a_finished_stage_stays_finished() -> None:
    """Whatever the bound, as drafts may hang on the target's weights."""
    stage = Stage(allowance=1000.0, minutes=0.0)
    stage.pacer.resume(86, StepDecision(count=86, of=200, minutes=1.0))
    assert stage.pacer.schedule.steps == 86
