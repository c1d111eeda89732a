"""How many replicas there should be, over simulated load: what comes and goes, and what never may happen."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from outrider.cluster.config.config_service import Autoscaling
from outrider.cluster.roster.roster import ReplicaScale, Role
from outrider.cluster.supervise.observed_load import LoadSample
from outrider.cluster.supervise.replica_policy import UNPAID_S, decide

LOOK_S = 5.0
SETTINGS = Autoscaling(interval_s=LOOK_S, upscale_delay_s=30.0, downscale_delay_s=600.0)
SLOTS = 8
KEPT = int(SETTINGS.downscale_delay_s / LOOK_S) + 2
"""Samples: what the autoscaler keeps, which forgets whatever is older than the longest delay but for one."""

TARGET = ReplicaScale(entry="t", role=Role.TARGET, least=1, most=4, wanted=1)
DRAFTER = ReplicaScale(entry="d", role=Role.DRAFTER, least=1, most=4, wanted=1)


class Simulated:
    """One entry under a load that is a function of time: replicas come at once, and no more run at a time than they hold."""

    def __init__(self, scale: ReplicaScale, replicas: int = 1) -> None:
        self.scale = scale
        self.replicas = replicas
        self.now_s = 0.0
        self.history: list[LoadSample] = []
        self.changes: list[tuple[float, int]] = []
        self.reason = ""

    def run(
        self,
        until_s: float,
        texts: Callable[[float], int],
        *,
        gain: float | None = None,
        is_short: bool = False,
    ) -> list[tuple[float, int]]:
        """Looks until then. Returns when the number changed, and to what."""
        self.changes = []
        while self.now_s < until_s:
            wanted = texts(self.now_s)
            running = min(wanted, self.replicas * SLOTS)
            is_target = self.scale.role is Role.TARGET
            tokens = 0.0 if is_target or gain is None else 100.0 * wanted
            self.history.append(
                LoadSample(
                    at_s=self.now_s,
                    sessions=running if is_target else wanted,
                    waiting=wanted - running if is_target else 0,
                    slots=SLOTS,
                    tokens=tokens,
                    gained=tokens * (gain or 0.0),
                )
            )
            del self.history[:-KEPT]
            decision = decide(
                self.scale,
                self.replicas,
                self.history,
                SETTINGS,
                now_s=self.now_s,
                is_short=is_short,
            )
            assert self.scale.least <= decision.count <= self.scale.most
            if decision.wanted != self.replicas:
                self.replicas, self.reason = decision.count, decision.reason
                self.changes.append((self.now_s, decision.count))
            self.now_s += LOOK_S
        return self.changes


def test_a_queue_that_lasts_brings_as_many_as_it_takes() -> None:
    """At once, not one by one; not before the delay; and the reason has the numbers."""
    one = Simulated(TARGET)
    assert one.run(100.0, lambda at_s: 16) == [(30.0, 3)]
    assert one.reason == "8 texts run and 8 wait, with 8 slots"


def test_targets_without_free_slots_are_joined_before_anyone_waits() -> None:
    """At four fifths of the slots."""
    assert Simulated(TARGET).run(100.0, lambda at_s: 6) == []
    assert Simulated(TARGET).run(100.0, lambda at_s: 7) == [(30.0, 2)]


def test_a_short_rush_changes_nothing() -> None:
    """Twenty-five seconds of it, again and again."""
    rushes = lambda at_s: 100 if at_s % 60.0 < 25.0 else 2
    assert Simulated(TARGET).run(3_600.0, rushes) == []


def test_bounds_hold_whatever_the_load() -> None:
    """A hundred times what the most could take, and nothing at all."""
    one = Simulated(TARGET, 2)
    assert one.run(700.0, lambda at_s: 10_000)[-1][1] == 4
    assert one.run(2_000.0, lambda at_s: 0)[-1][1] == 1
    assert (
        Simulated(ReplicaScale(entry="t", role=Role.TARGET, least=3, most=4, wanted=3), 3).run(
            2_000.0, lambda at_s: 0
        )
        == []
    )


def test_replicas_go_once_they_were_not_needed_for_long() -> None:
    """Not after a pause that is shorter than the delay."""
    one = Simulated(TARGET, 4)
    pauses = lambda at_s: 0 if at_s % 650.0 < 590.0 else 26
    assert one.run(6_500.0, pauses) == []
    ((at_s, count),) = one.run(10_000.0, lambda at_s: 9)
    assert count == 2
    assert at_s >= 6_500.0 + 600.0 - LOOK_S
    assert one.reason == "at most 9 texts at a time in the last 600 s"


@pytest.mark.parametrize("seed", range(20))
def test_nothing_flaps(seed: int) -> None:
    """Under a load that wanders, and that swings about every limit, what came stays for the whole delay of going."""
    draw = random.Random(seed)
    phase, period = draw.uniform(0.0, 6.0), draw.uniform(20.0, 2_000.0)

    def texts(at_s: float) -> int:
        level = 13.0 + 13.0 * math.sin(phase + 6.283 * at_s / period) + draw.gauss(0.0, 2.0)
        return max(0, round(level))

    last_up_s = -math.inf
    before = 1
    for at_s, count in Simulated(TARGET).run(20_000.0, texts):
        if count > before:
            last_up_s = at_s
        else:
            assert at_s - last_up_s >= SETTINGS.downscale_delay_s
        before = count


def test_drafters_follow_the_texts_that_run() -> None:
    """So that each has one, as long as that pays."""
    assert Simulated(DRAFTER).run(200.0, lambda at_s: 16, gain=0.6) == [(30.0, 3)]
    assert Simulated(DRAFTER).run(200.0, lambda at_s: 16, gain=0.07)[1:] == []


def test_drafters_that_do_not_pay_go_first() -> None:
    """Long before those that are not needed, and while all of them would be; with the reason."""
    one = Simulated(DRAFTER, 4)
    assert one.run(1_000.0, lambda at_s: 24, gain=0.02) == [(UNPAID_S, 1)]
    assert one.reason == "of each token 0.02 was theirs in the last 120 s: they do not pay"
    # They come again only if they have become much better.
    assert one.run(2_000.0, lambda at_s: 24, gain=0.08) == []
    assert one.run(3_000.0, lambda at_s: 24, gain=0.3)[-1][1] == 4


def test_drafters_at_rest_make_room_at_once_for_what_finds_none() -> None:
    """Those that pay stay."""
    assert Simulated(DRAFTER, 4).run(100.0, lambda at_s: 24, gain=0.0) == []
    assert Simulated(DRAFTER, 4).run(100.0, lambda at_s: 24, gain=0.0, is_short=True) == [(30.0, 1)]
    assert Simulated(DRAFTER, 4).run(500.0, lambda at_s: 24, gain=0.5, is_short=True) == []


def test_drafters_without_texts_are_not_judged() -> None:
    """They go when they are not needed, like anything else."""
    ((at_s, count),) = Simulated(DRAFTER, 4).run(1_000.0, lambda at_s: 0, gain=0.0)
    assert (at_s, count) == (600.0, 1)
