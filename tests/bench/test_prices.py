"""Prices of processor time: every step of the simulation is timed."""

from __future__ import annotations

import math

import pytest

from bench.suites.parts import prices_suite
from outrider.cluster.simulate.prices import FILE, Prices, Sleep


def test_quick_prices_are_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the form that the simulation reads, no step without a price, and nothing written; after short sleeps."""
    monkeypatch.setattr(prices_suite, "SLEEPS_S", (0.001, 0.002, 0.006))
    before = FILE.read_text(encoding="utf-8")
    (row,) = prices_suite.run(is_quick=True)
    found = Prices.model_validate(row)
    assert FILE.read_text(encoding="utf-8") == before
    for steps in (found.target, found.drafter):
        assert min(step.seconds(1, 1) for step in (steps.take, steps.begin, steps.finish)) > 0.0
    assert found.coordinator.take.seconds(1, 1) > 0.0
    assert found.message.seconds(1.0) >= found.message.seconds(0.0) > 0.0


@pytest.mark.parametrize(
    "sleep", [Sleep(times=2.4, within_us=1700.0), Sleep(times=1.5, within_us=300.0)]
)
def test_prices_of_sleep_are_those_of_the_measured_steps(sleep: Sleep) -> None:
    """The curve that all points are on is found again."""
    factors = [sleep.factor(slept_s) for slept_s in prices_suite.SLEEPS_S]
    found = Sleep.model_validate(prices_suite.sleep_of(factors))
    assert found.times == pytest.approx(sleep.times, rel=1e-3)
    assert found.within_us == pytest.approx(sleep.within_us, rel=1e-3)


@pytest.mark.parametrize(
    "factors",
    [
        (1.2, 1.1, 1.3),
        (0.9, 0.95, 0.97),
        (1.01, 2.0, 2.1),
        (2.0, 2.0, 2.0),
        (1.4, 2.6, 2.7),
        (1.0, 1.0, 3.0),
    ],
)
def test_prices_of_sleep_go_nowhere_that_was_not_measured(factors: tuple[float, ...]) -> None:
    """As a noisy machine measures them: no sleep, however long, costs more than the dearest that was measured, and none makes a step faster."""
    found = Sleep.model_validate(prices_suite.sleep_of(factors))
    assert found.factor(0.0) == 1.0
    assert 1.0 <= found.factor(math.inf) <= 1.05 * max(*factors, 1.0)
    least = min(max(factor, 1.0) for factor in factors)
    assert found.factor(prices_suite.SLEEPS_S[-1]) >= 0.999 * least
