"""Prices of processor time: every step of the simulation is timed."""

from __future__ import annotations

from bench import prices
from outrider.cluster.simulate.prices import FILE, Prices


def test_quick_prices_are_prices() -> None:
    """In the form that the simulation reads, no step without a price, and nothing written."""
    before = FILE.read_text(encoding="utf-8")
    (row,) = prices.run(is_quick=True)
    found = Prices.model_validate(row)
    assert FILE.read_text(encoding="utf-8") == before
    for steps in (found.target, found.drafter):
        assert min(step.seconds(1, 1) for step in (steps.take, steps.begin, steps.finish)) > 0.0
    assert found.coordinator.take.seconds(1, 1) > 0.0
    assert found.message.seconds(1.0) >= found.message.seconds(0.0) > 0.0
