"""How long plain decoding would take for what another mode did."""

from __future__ import annotations

import random

import pytest

from outrider.actors.target.pace import Bill, Pace


def plain(rounds: int, *, seed: int = 0) -> Pace:
    """Rounds of sixteen tokens and some rows of prompts: a unit on tokens takes 30 ms, one on prompts 8."""
    draws, pace = random.Random(seed), Pace()
    for _ in range(rounds):
        prompts = draws.choice([0.0, 0.0, 4.0, 9.0])
        seconds = 0.030 * 16.0 + 0.008 * prompts
        pace.observe(16.0, prompts, seconds * draws.uniform(0.9, 1.1))
    return pace


def test_a_mode_that_meets_more_prompts_is_not_faster_for_that() -> None:
    """Weighed alike, tokens and prompts would make a mode seem faster that spends its time on cheap prompts."""
    other = Pace()
    for _ in range(40):
        other.observe(16.0, 40.0, 0.030 * 16.0 + 0.008 * 40.0)
    found = [plain(40, seed=seed).seconds_of(other) / other.seconds for seed in range(20)]
    # Weighed alike: 1.87. With prompts a little too cheap the doubt is plain decoding's.
    assert max(found) < 1.12
    assert sum(found) / len(found) == pytest.approx(1.0, abs=0.08)


def test_prompts_that_no_plain_round_had_count_for_nothing() -> None:
    """What they are worth is not known."""
    pace = Pace()
    for _ in range(10):
        pace.observe(16.0, 0.0, 0.48)
    assert pace.weights == pytest.approx((0.03, 0.0))


def test_nothing_seen() -> None:
    """No time, no loss."""
    assert Pace().weights == (0.0, 0.0)
    assert Bill().gap(Pace(), 0.02) == 0


def test_rounds_that_are_all_alike() -> None:
    """The whole comes out, whatever cannot be told apart."""
    pace = Pace()
    for _ in range(30):
        pace.observe(16.0, 5.0, 0.5)
    assert pace.seconds_of(pace) == pytest.approx(pace.seconds)


def test_a_bill_becomes_a_gap() -> None:
    """A trial that took ten rounds longer than plain decoding would is due again after five hundred."""
    pace = plain(100)
    bill = Bill()
    bill.observe(32.0, 0.0, 0.030 * 32.0 + 10.0 * pace.seconds / pace.rounds)
    assert bill.gap(pace, 0.02) == pytest.approx(500, rel=0.05)
