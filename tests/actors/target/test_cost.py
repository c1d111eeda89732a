"""The cost model of a pass."""

from __future__ import annotations

import pytest

from outrider.actors.target.cost import CostModel


def test_cost_model_finds_a_line() -> None:
    """Base and marginal cost are recovered from passes of different sizes."""
    model = CostModel()
    for rows in (1, 17, 4, 9, 1, 12) * 10:
        model.observe(rows, 0.002 + 0.0001 * rows)
    assert model.marginal_s == pytest.approx(0.0001, rel=1e-6)
    assert model.predict(8) == pytest.approx(0.0028, rel=1e-6)


def test_cost_model_follows_a_change() -> None:
    """When the machine slows down, the model does too."""
    model = CostModel()
    for rows in (1, 9) * 50:
        model.observe(rows, 0.001)
    for rows in (1, 9) * 300:
        model.observe(rows, 0.002)
    assert model.predict(1) == pytest.approx(0.002, rel=0.02)


def test_one_pause_is_not_a_law() -> None:
    """A single pass that took a second hardly moves the prediction."""
    model = CostModel()
    for rows in (1, 9) * 50:
        model.observe(rows, 0.002)
    model.observe(9, 1.0)
    assert model.predict(9) < 0.0025


def test_cost_model_is_sane_on_little_evidence() -> None:
    """Nothing seen, one size only, or falling times never give a negative cost."""
    model = CostModel()
    assert model.predict(5) > 0.0
    assert model.marginal_s == 0.0
    model.observe(3, 0.01)
    assert model.marginal_s == 0.0
    assert model.predict(3) == pytest.approx(0.01)
    model.observe(9, 0.001)
    assert model.marginal_s == 0.0
    assert model.predict(1) > 0.0
