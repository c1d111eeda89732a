"""The cost model of a pass."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.target.schedule.cost import CostModel

CURVE = {1: 0.002, 2: 0.0024, 8: 0.0030, 16: 0.0038}


def model() -> CostModel:
    """A model that was warmed up."""
    cost = CostModel()
    cost.set_curve(CURVE)
    return cost


def row_s(cost: CostModel, rows: int) -> float:
    """Seconds of one row more."""
    return cost.predict(rows + 1) - cost.predict(rows)


def test_curve_is_followed_between_and_beyond_its_points() -> None:
    """Lines between measured sizes; the last slope goes on."""
    cost = model()
    assert cost.predict(2) == pytest.approx(0.0024)
    assert cost.predict(5) == pytest.approx(0.0027)
    assert cost.predict(32) == pytest.approx(0.0054)
    assert row_s(cost, 1) == pytest.approx(0.0004)
    assert row_s(cost, 100) == pytest.approx(0.0001)
    assert cost.seconds(np.array([2, 5, 32])).tolist() == pytest.approx([0.0024, 0.0027, 0.0054])


def test_scale_and_overhead_follow_the_machine() -> None:
    """When passes take twice as long and rounds a millisecond more, predictions follow; the shape stays."""
    cost = model()
    for rows in (1, 8) * 100:
        seconds = 2.0 * CURVE[rows]
        cost.observe(rows, seconds, seconds + 0.001, drafting=True)
    assert cost.predict(1) == pytest.approx(0.005, rel=0.01)
    assert cost.predict(16) == pytest.approx(0.0086, rel=0.01)
    assert row_s(cost, 12) == pytest.approx(0.0002, rel=0.01)


def test_sizes_that_come_in_bad_times_do_not_look_dear() -> None:
    """Slow passes that happen to have more rows raise the scale, not the slope."""
    cost = model()
    for _ in range(50):
        cost.observe(1, 0.002, 0.002, drafting=True)
        cost.observe(2, 0.004, 0.004, drafting=True)
    assert row_s(cost, 2) < 0.0002


def test_one_pause_is_not_a_law() -> None:
    """A single pass that took a second hardly moves the prediction."""
    cost = model()
    for _ in range(20):
        cost.observe(1, 0.002, 0.0021, drafting=True)
    cost.observe(1, 1.0, 2.0, drafting=True)
    assert cost.predict(1) < 0.003


def test_wobbling_measurements_make_no_negative_cost() -> None:
    """A larger pass that was measured to be faster counts as equally fast."""
    cost = CostModel()
    cost.set_curve({1: 0.002, 2: 0.001, 4: 0.003})
    assert row_s(cost, 1) == 0.0
    assert cost.predict(2) == pytest.approx(0.002)


def test_nothing_measured_is_still_finite() -> None:
    """Before the warm-up every row costs alike."""
    cost = CostModel()
    assert cost.predict(10) == cost.predict(1) > 0.0


def test_drafters_that_share_the_machine_are_learned_apart() -> None:
    """While they work passes are slower; what was not met yet is taken from the other."""
    cost = model()
    cost.observe(8, 0.003, 0.004, drafting=False)
    assert cost.predict(8) == pytest.approx(cost.predict(8, drafting=False))
    for _ in range(200):
        cost.observe(8, 0.006, 0.009, drafting=True)
    assert cost.predict(8) == pytest.approx(0.009, rel=0.01)
    assert cost.predict(8, drafting=False) == pytest.approx(0.004)
