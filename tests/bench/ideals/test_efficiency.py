"""Costs, law and bounds of one run, put together."""

from __future__ import annotations

from typing import Any

import pytest

from bench.figures.passes import Passes
from bench.ideals.efficiency import efficiency, lockstep_ideal
from bench.ideals.law import Replay
from bench.running.targets import BenchTarget

TARGET = BenchTarget(
    part="25", model="m", layers=100, curve=((1, 0.025), (3, 0.030), (17, 0.044), (64, 0.1))
)
PLAIN = Passes(plain_s=0.025, tree_s=0.0, tree_nodes=0.0, draft_s=0.0, num_drafts=0, busy=0.99)
PIPELINED = Passes(
    plain_s=0.026, tree_s=0.035, tree_nodes=7.0, draft_s=0.00125, num_drafts=300, busy=0.95
)
HITS = ([True] * 4 + [False]) * 20


def _row(speed_up: float, *, round_trip_s: float = 0.0, hits: list[bool] = HITS) -> dict[str, Any]:
    return efficiency(
        speed_up,
        plain=PLAIN,
        pipelined=PIPELINED,
        tokens_per_pass=2.8,
        replayed=Replay(hits=tuple(hits), tokens_per_pass={2: 2.4, 16: 3.52}),
        target=TARGET,
        round_trip_s=round_trip_s,
    )


def test_costs_are_in_plain_passes() -> None:
    """And the target's bound is that of the tree that pays most, met or not."""
    row = _row(1.6)
    assert row["draft_cost"] == pytest.approx(0.05)
    assert row["pass_cost"] == pytest.approx(1.4)
    assert row["mean_run"] == pytest.approx(4.0)
    # Five tokens in a pass and four draft steps.
    assert row["drafter_bound"] == pytest.approx(5.0 / 1.2)
    assert row["target_bound"] == pytest.approx(max(2.4 / 1.2, 3.52 / 1.76, 2.8 / 1.4))
    assert row["eta"] == pytest.approx(1.6 / 2.0)


def test_a_far_drafter_lowers_the_ideal() -> None:
    """Three passes of round trip: five tokens in 4.2, or plainly in 5."""
    row = _row(1.0, round_trip_s=0.075)
    assert row["ideal"] == pytest.approx(5.0 / 4.2)


def test_a_text_without_a_miss() -> None:
    """Is one run, as far as is known."""
    assert _row(1.6, hits=[True] * 30)["mean_run"] == pytest.approx(30.0)


def test_lock_step_waits_for_everything() -> None:
    """The biggest tree, all its levels, and the round trip."""
    row = _row(1.6)
    reached = lockstep_ideal(row, levels=5.0, round_trip=0.5)
    assert reached == pytest.approx(3.52 / (1.4 + 5 * 0.05 + 0.5))
