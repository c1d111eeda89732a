"""The virtual clock goes on, whatever a scenario asks for."""

from __future__ import annotations

import numpy as np

from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulated_process import Machine
from outrider.cluster.simulate.simulated_service import SimulatedMode, SimulatedService
from outrider.cluster.simulate.target_process import TICK_S

EVENTS = 20_000
"""More than a scenario of a millisecond has."""


def test_passes_that_take_nothing_end() -> None:
    """A pass so short that adding it changes no time would be followed by others at that moment for ever."""
    scenario = Scenario.model_validate(
        {
            "name": "nothing",
            "seconds": 0.001,
            "prices": "free",
            "targets": [{"name": "t", "model": "law:agree70", "profile": "0.0000000001ns"}],
            "load": [{"clients": 1, "tokens": 500, "prompt": 8}],
        }
    )
    service = SimulatedService(scenario, SimulatedMode.PLAIN)
    plan, planned = service.heap.at, 0

    def counted(*args: object) -> object:
        nonlocal planned
        planned += 1
        assert planned < EVENTS
        return plan(*args)  # type: ignore[arg-type]

    service.heap.at = counted  # type: ignore[method-assign, assignment]
    service.run()
    assert 100 < len(service.targets["t"].log.seconds) <= scenario.seconds / TICK_S


def test_a_machine_of_many_cores_is_as_fast_as_one_of_few() -> None:
    """Who wants a core gets the first that is free, and does not look at all of them: that would take minutes here."""
    many = Machine(1_000_000)
    assert {many.run(1.0, 2.0) for _ in range(1000)} == {3.0}

    few, free = Machine(3), np.zeros(3)
    draws = np.random.default_rng(1)
    for start, seconds in zip(np.sort(draws.random(200)), draws.random(200) / 20, strict=True):
        core = int(free.argmin())
        free[core] = max(start, free[core]) + seconds
        assert few.run(start, seconds) == free[core]
