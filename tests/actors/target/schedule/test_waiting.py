"""When a target waits for candidates: exactly while that is worth more than it costs, and never for ever."""

from __future__ import annotations

import random

import pytest

from outrider.actors.target.schedule.waiting import Delay, Waiting

PACE = 100.0
"""Tokens a second."""


def learned(seconds: float, count: int = 60, spread: float = 0.0) -> Waiting:
    """What is known of a drafter that answers so fast."""
    waiting, rng = Waiting(), random.Random(1)
    for _ in range(count):
        waiting.first.observe(seconds + rng.uniform(-spread, spread))
    return waiting


@pytest.mark.parametrize("seconds", [0.002, 0.02, 0.2])
@pytest.mark.parametrize("worth", [0.5, 0.9, 1.1, 2.0])
def test_waits_if_what_comes_is_worth_the_time(seconds: float, worth: float) -> None:
    """What comes against what the target would commit meanwhile."""
    waiting = learned(seconds)
    gain = worth * PACE * seconds
    assert (waiting.left_s(gain, PACE, waiting.first, 0.0) > 0.0) == (worth > 1.0)


def wait(waiting: Waiting, gain: float, arrives_s: float) -> float:
    """Seconds waited, by a target that looks when it is told to."""
    elapsed_s = 0.0
    for _ in range(200):
        left_s = waiting.left_s(gain, PACE, waiting.first, elapsed_s)
        if left_s <= 0.0 or elapsed_s + left_s >= arrives_s:
            return min(elapsed_s + left_s, arrives_s)
        elapsed_s += left_s
    raise AssertionError("it waits for ever")


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("gain", [0.1, 1.0, 30.0])
def test_every_wait_ends(spread: float, gain: float) -> None:
    """When nothing comes: in a few times what it usually takes, or what it would be worth."""
    waiting = learned(0.01, spread=0.01 * spread)
    assert wait(waiting, gain, float("inf")) < 10 * 0.01 + 2.0 * gain / PACE


def test_what_comes_in_time_is_awaited() -> None:
    """The target does not begin right before it."""
    waiting = learned(0.01, spread=0.002)
    for arrives_s in (0.008, 0.01, 0.012):
        assert wait(waiting, 3.0, arrives_s) == arrives_s


def test_nothing_known_is_hopeful() -> None:
    """Else it would never be known; but the first wait is no longer than what it may bring."""
    waiting = Waiting()
    assert 0.0 < wait(waiting, 1.5, float("inf")) <= 2.0 * 1.5 / PACE


def test_a_silent_drafter_soon_costs_nothing() -> None:
    """Waits in vain count double, so they end; one that speaks again is waited for again."""
    waiting, lost_s = Waiting(), 0.0
    for _ in range(200):
        waited_s = wait(waiting, 1.5, float("inf"))
        lost_s += waited_s
        if not waited_s:
            break
        waiting.first.observe(2.0 * waited_s)
    assert not waited_s
    assert lost_s < 10 * 1.5 / PACE
    for _ in range(30):
        waiting.first.observe(0.001)
    assert wait(waiting, 1.5, 0.001) == 0.001


@pytest.mark.parametrize("arrives_s", [0.02, float("inf")])
def test_no_wait_costs_more_than_what_comes_is_worth(arrives_s: float) -> None:
    """However little is known of when it comes."""
    waiting = learned(0.01, spread=0.01)
    gain = 1.2 * PACE * 0.01
    assert wait(waiting, gain, arrives_s) <= gain / PACE + 1e-9


@pytest.mark.parametrize("elapsed_s", [0.0, 0.5, 1.0, 2.0, 5.0])
def test_what_is_late_is_believed_to_take_long(elapsed_s: float) -> None:
    """What is left never becomes negative, and grows with the delay once it is overdue."""
    delay = Delay()
    for _ in range(100):
        delay.observe(1.0)
    left_s = delay.left_s(elapsed_s)
    assert left_s >= 0.0
    if elapsed_s > 1.5:
        assert left_s == elapsed_s
    if elapsed_s < 0.9:
        assert left_s == pytest.approx(1.0 - elapsed_s, abs=0.01)
