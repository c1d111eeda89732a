"""One seed, one run, bit by bit."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from outrider.cluster.simulate.compare import difference, run
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulated_service import SimulatedMode, SimulatedRun

EVERYTHING = {
    "name": "everything",
    "seconds": 0.9,
    "machines": {"box": 2},
    "targets": [
        {
            "name": "t",
            "model": "law:agree70",
            "profile": "10ms+10us",
            "slots": 8,
            "machine": "box",
            "gpu": "card",
        }
    ],
    "drafters": [
        {
            "name": "d",
            "model": "law:agree70/draft",
            "profile": "1ms+3us",
            "slots": 8,
            "machine": "box",
            "on_cores": True,
            "link": {"latency_ms": 2.0, "jitter_ms": 0.5, "loss": 0.02},
        },
        {
            "name": "e",
            "model": "law:agree70/draft-2",
            "profile": "1ms+3us",
            "slots": 8,
            "gpu": "card",
        },
    ],
    "load": [{"clients": 3, "tokens": 30, "prompt": 16}],
    "waves": [{"at_s": 0.1, "requests": 2, "tokens": 10, "prompt": 8}],
    "faults": [
        {"at_s": 0.2, "what": "dies", "who": "e", "seconds": 0.1},
        {"at_s": 0.3, "what": "cut", "who": "d", "seconds": 0.05},
        {"at_s": 0.4, "what": "slows", "who": "d", "seconds": 0.1},
        {"at_s": 0.5, "what": "dies", "who": "t", "seconds": 0.05},
        {"at_s": 0.6, "what": "misleads", "who": "d", "seconds": 0.1},
        {"at_s": 0.65, "what": "pauses", "who": "t", "seconds": 0.02},
        {"at_s": 0.7, "what": "link", "who": "d", "link": {"latency_ms": 6.0}},
        {"at_s": 0.75, "what": "cores", "who": "box", "cores": 1},
    ],
}
"""Every kind of load and fault."""

SCRIPT = """
import sys
from outrider.cluster.simulate.compare import run
from outrider.cluster.simulate.simulated_service import SimulatedMode as Mode
from outrider.cluster.simulate.simulate_command import quiet
from outrider.cluster.simulate.scenario import Scenario
from tests.cluster.simulate.test_determinism import EVERYTHING
with quiet():
    print(run(Scenario.model_validate(EVERYTHING), Mode.PIPELINED).digest)
"""


@cache
def ran(mode: SimulatedMode, seed: int | None = None) -> SimulatedRun:
    """A run with every kind of load and fault."""
    scenario = Scenario.model_validate(EVERYTHING)
    return run(scenario if seed is None else scenario.model_copy(update={"seed": seed}), mode)


def test_another_process_with_other_string_hashes_gives_the_same_digest() -> None:
    """Nothing depends on the order of a set, on memory or on a clock."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == ran(SimulatedMode.PIPELINED).digest, done.stderr


def test_a_device_is_not_busy_for_longer_than_the_run() -> None:
    """Of a pass that the end cuts off counts what was before it."""
    target = {"name": "t", "model": "law:agree70", "profile": "25ms+20us", "slots": 8}
    load = [{"clients": 3, "tokens": 30, "prompt": 16}]
    alone = Scenario.model_validate(
        {"name": "alone", "seconds": 0.11, "targets": [target], "load": load}
    )
    (busy_s,) = run(alone, SimulatedMode.PLAIN).device_s.values()
    assert 0.09 < busy_s <= 0.11


def test_another_seed_gives_another_run() -> None:
    """The digest sees what happens."""
    assert ran(SimulatedMode.PLAIN).digest != ran(SimulatedMode.PLAIN, seed=2).digest


@pytest.mark.parametrize("mode", [SimulatedMode.PIPELINED, SimulatedMode.LOCKSTEP])
def test_whatever_goes_wrong_outputs_are_those_of_plain_decoding(mode: SimulatedMode) -> None:
    """And no request fails."""
    plain, other = ran(SimulatedMode.PLAIN), ran(mode)
    assert difference(plain, other) == ""
    assert other.tokens > 100
    assert not any(asked.failure for asked in other.answers.requests.values())
