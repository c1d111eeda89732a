"""When a target waits for candidates: exactly while that is worth more than it costs, and never for ever."""

from __future__ import annotations

import random

import numpy as np
import pytest

from outrider.actors.speculation.learning import Delay
from outrider.actors.target.schedule.waiting import Waiting

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


PASS_S = 0.01
"""Of a pass."""


def out_s(waiting: Waiting, tokens: float, elapsed_s: float, *, is_busy: bool = False) -> float:
    """For how long one session is left out of passes."""
    (left_s,) = waiting.out_s(
        np.array([tokens]), np.array([elapsed_s]), PASS_S, is_busy=is_busy, most_s=1.0
    )
    return float(left_s)


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize("tokens", [1.0, 1.2, 2.5, 5.0])
def test_a_session_is_left_out_while_its_candidates_are_worth_more_than_passes_without(
    tokens: float, is_busy: bool
) -> None:
    """Tokens a second: of one pass after another, and of the candidates' time, what is left of another pass, and one."""
    late = 0.5 if is_busy else 0.0
    for passes in np.arange(0.05, 6.0, 0.1).tolist():
        waits = tokens / (passes + late + 1.0) > 1.0
        is_out = out_s(learned(passes * PASS_S), tokens, 0.0, is_busy=is_busy) > 0.0
        assert is_out == waits, passes


@pytest.mark.parametrize("tokens", [1.5, 3.0, 9.0])
def test_nobody_is_left_out_for_ever(tokens: float) -> None:
    """Whatever is known of how long candidates take: for no longer than they are worth, and what is late is believed to be later still."""
    for waiting in (Waiting(), learned(0.5 * PASS_S), learned(2.0 * PASS_S, spread=PASS_S)):
        elapsed_s = 0.0
        while (left_s := out_s(waiting, tokens, elapsed_s)) > 0.0:
            elapsed_s += left_s
            assert elapsed_s <= (tokens - 1.0) * PASS_S + 1e-9
        assert out_s(waiting, tokens, elapsed_s + 1.0) == 0.0
    (bounded,) = learned(2.0).out_s(np.array([1e6]), np.zeros(1), PASS_S, is_busy=False, most_s=3.0)
    assert bounded == 3.0


def test_a_pass_waits_for_whom_it_would_leave_out_if_they_are_close() -> None:
    """A tenth of a pass is waited for, a whole one is not; the more there are, the longer."""
    waiting = learned(2.0 * PASS_S)

    def together_s(num_out: int, left: float, pace: float, waited_s: float = 0.0) -> float:
        elapsed_E = np.full(num_out, 2.0 * PASS_S - left * PASS_S)
        return waiting.together_s(
            np.full(num_out, 4.0), elapsed_E, PASS_S, pace=pace, waited_s=waited_s
        )

    pace = 4.0 / PASS_S
    assert together_s(1, 0.1, pace) > 0.0
    assert together_s(1, 1.0, pace) == 0.0
    assert together_s(8, 1.0, pace) > 0.0
    assert together_s(8, 1.0, 10.0 * pace) == 0.0
    # No longer than what they bring is worth, however long it has waited.
    assert together_s(1, 0.1, pace) <= PASS_S
    assert together_s(1, 0.1, pace, waited_s=PASS_S) == 0.0
