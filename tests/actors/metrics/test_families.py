"""Metrics that say what others mean."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.metrics.families import emulated_device


@pytest.mark.parametrize(
    ("device", "expected"),
    [("emulated:10ms+10us", '{profile="10ms+10us"} 1.0'), ("cpu", '{profile=""} 0.0')],
)
def test_figures_of_an_emulated_device_are_marked(device: str, expected: str) -> None:
    """On the page that is scraped."""
    engine = load_engine(EngineSettings(model="law:agree70", device=device, num_slots=1))

    class Told:
        def collect(self) -> list[Metric]:
            return [emulated_device(engine.spec.emulated)]

    registry = CollectorRegistry()
    registry.register(Told())
    assert f"outrider:emulated_device{expected}" in generate_latest(registry).decode()
