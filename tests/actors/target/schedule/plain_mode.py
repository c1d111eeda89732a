"""Whether drafters work, told with loops over plain numbers: the reference for `schedule.mode.Mode` and what the planner tells it.

One function goes through all rounds there were, and says of each whether drafters worked (decision 3 of docs/scheduling.md).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PlainRound:
    """What one round came to."""

    drafted: int
    """Sessions that drafters work for, or would."""
    sessions: int
    """That decoded."""
    tokens: float
    """That these committed."""
    seconds: float
    """From the end of the round before to its own."""
    plain_s: float
    """Seconds that plain decoding took for so many sessions when it was timed."""
    caught_up: bool = True
    """Drafters have answered for all sessions what these had grown by when they were woken."""
    counts: bool = True
    """False: it read a part of a prompt, or no other ran right before it."""


def modes(rounds: Sequence[PlainRound], drafted: int) -> list[bool]:
    """Whether drafters work, in each of these rounds, and in the next one, which drafts for so many sessions."""
    # Speeds that are remembered of each way at each load, and how many were taken in since all were forgotten.
    speeds: defaultdict[tuple[int, bool], list[float]] = defaultdict(list)
    taken: defaultdict[tuple[int, bool], int] = defaultdict(int)
    # Of each load: the way that goes on, what trying may cost, what it has cost last.
    ways: dict[int, bool] = {}
    budgets: dict[int, float] = {}
    prices: dict[int, float] = {}
    # What a trial has cost at each so far; the first rounds with drafters are one.
    lost: defaultdict[int, float] = defaultdict(float)
    # The trial that runs, if one does: speeds of its rounds, those that are judged, and how many of them count.
    trial: int | None = None
    tried, judged, counted = list[float](), list[float](), 0
    # Whose trial ran last, and for how many more rounds what comes is still its cost.
    latest, after = 0, 0
    last: int | None = None

    def mean(load: int, drafts: bool) -> float:
        known = speeds[load, drafts]
        return sum(known) / len(known) if known else 0.0

    def variance(load: int, drafts: bool) -> float:
        """Of the mean."""
        known, middle = speeds[load, drafts], mean(load, drafts)
        if len(known) < 2:
            return math.inf
        return sum((one - middle) ** 2 for one in known) / (len(known) - 1) / len(known)

    def learn(load: int, drafts: bool, speed: float) -> bool:
        """Whether the speed has changed."""
        known = speeds[load, drafts]
        known.append(speed)
        del known[:-256]
        taken[load, drafts] += 1
        if taken[load, drafts] % 8:
            return False
        total, squares = sum(known), sum(one * one for one in known)
        single = squares - total * total / len(known)
        least, change = single, 0
        first = 0.0
        for place, one in enumerate(known, start=1):
            first += one
            if 8 <= place <= len(known) - 8:
                rest = total - first
                double = squares - first * first / place - rest * rest / (len(known) - place)
                if double < least:
                    least, change = double, place
        # Two means with one spread over one mean: the ratio of likelihoods is (single / double) ^ (rounds / 2).
        if not change or 0.5 * len(known) * math.log(single / least) <= math.log(10_000.0):
            return False
        del known[:change]
        return True

    def turn(load: int) -> bool:
        """Goes on with the other way if it is faster by a hundredth and a standard error of the difference."""
        here = ways[load]
        error = math.sqrt(variance(load, here) + variance(load, not here))
        if mean(load, not here) <= 1.01 * mean(load, here) + error:
            return False
        # By what is known, eight rounds of the way that is left would cost this.
        prices[load] = 8 * (mean(load, not here) - mean(load, here))
        prices[load] = min(max(prices[load], 1.0), 2.56)
        budgets[load] = max(budgets[load], 0.5)
        ways[load] = not here
        return True

    def pay(load: int) -> None:
        nonlocal trial, latest, after
        prices[load] = min(max(lost[load], 1.0), 256.0)
        budgets[load] -= prices[load]
        trial, latest, after = None, load, 8

    found: list[bool] = []
    for place in range(len(rounds) + 1):
        at = rounds[place].drafted if place < len(rounds) else drafted
        if not at:
            found.append(True)
            continue
        load = 0
        while 2**load < at:
            load += 1
        if load not in budgets:
            budgets[load], prices[load] = 0.5, 1.0
        if trial is not None and load != last:
            if tried:
                for each in judged:
                    learn(trial, not ways[trial], each)
                pay(trial)
            trial = None
        if load != last and len(speeds[load, True]) + len(speeds[load, False]) < 8:
            # Not known: the way that goes on goes on, unless drafters rest where there are fewer sessions.
            goes_on = last is None or ways[last]
            ways[load] = goes_on and all(drafts for other, drafts in ways.items() if other < load)
        last = load
        found.append(ways[load] != (trial is not None))
        if place == len(rounds) or not rounds[place].counts:
            continue
        one = rounds[place]
        lasted = one.seconds / one.plain_s
        speed = one.tokens / one.sessions / lasted
        here, there = ways[load], not ways[load]
        if after:
            after -= 1
            more = (mean(load, here) - speed) * lasted if speeds[load, here] else 0.0
            price = min(max(prices[latest] + more, 1.0), 256.0)
            budgets[latest] -= price - prices[latest]
            prices[latest] = price
            continue
        if trial is None:
            plain = mean(load, False) if speeds[load, False] else min(mean(load, True), 1.0)
            budgets[load] = min(budgets[load] + 0.01 * plain * lasted, 256.0)
            has_changed = learn(load, here, speed)
            if taken[load, here] % 8 == 0 and turn(load):
                continue
            is_gain = has_changed and mean(load, here) < mean(load, there)
            if here and not speeds[load, there]:
                # Plain decoding that never ran is thought to take what was timed.
                lost[load] += (1.0 - speed) * lasted
                if taken[load, here] % 8 == 0 or lost[load] > 8:
                    is_gain = mean(load, here) + 2.0 * math.sqrt(variance(load, here)) < 1.0
            if budgets[load] >= prices[load] or is_gain:
                trial, lost[load], tried, judged, counted = load, 0.0, [], [], 0
            continue
        lost[load] += (mean(load, here) - speed) * lasted
        tried.append(speed)
        if one.caught_up or here or counted:
            counted += 1
            if counted > 1:
                judged.append(speed)
        if counted < 8 and lost[load] <= 2.56 and len(tried) < 256:
            continue
        # What is known of the other way is its last trial.
        speeds[load, there], taken[load, there] = [], 0
        for each in judged or tried:
            learn(load, there, each)
        pay(load)
        if turn(load):
            after = 0
    return found
