"""One seed, one run, bit by bit."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from outrider.cluster.simulate.compare import difference, run
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulated_service import SimulatedMode

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


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """With every kind of load and fault."""
    return Scenario.model_validate(EVERYTHING)


def test_another_process_with_other_string_hashes_gives_the_same_digest(
    scenario: Scenario,
) -> None:
    """Nothing depends on the order of a set, on memory or on a clock."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.strip() == run(scenario, SimulatedMode.PIPELINED).digest, done.stderr


def test_a_device_is_not_busy_for_longer_than_the_run(scenario: Scenario) -> None:
    """Of a pass that the end cuts off counts what was before it."""
    one = {"profile": "25ms+20us", "slots": 8}
    alone = scenario.model_copy(
        update={
            "seconds": 0.11,
            "machines": {},
            "targets": [scenario.targets[0].model_copy(update={**one, "machine": None})],
            "drafters": [],
            "faults": [],
            "waves": [],
        }
    )
    (busy_s,) = run(alone, SimulatedMode.PLAIN).device_s.values()
    assert 0.09 < busy_s <= 0.11


def test_another_seed_gives_another_run(scenario: Scenario) -> None:
    """The digest sees what happens."""
    other = scenario.model_copy(update={"seed": 2})
    assert run(scenario, SimulatedMode.PLAIN).digest != run(other, SimulatedMode.PLAIN).digest


@pytest.mark.parametrize("mode", [SimulatedMode.PIPELINED, SimulatedMode.LOCKSTEP])
def test_whatever_goes_wrong_outputs_are_those_of_plain_decoding(
    scenario: Scenario, mode: SimulatedMode
) -> None:
    """And no request fails."""
    plain, other = run(scenario, SimulatedMode.PLAIN), run(scenario, mode)
    assert difference(plain, other) == ""
    assert other.tokens > 100
    assert not any(asked.failure for asked in other.answers.requests.values())
