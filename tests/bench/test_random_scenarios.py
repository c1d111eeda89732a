"""Scenarios drawn by chance: every kind comes, each seed is one scenario for ever, and what breaks the promise is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.suites.virtual import random_scenarios_suite
from bench.suites.virtual.random_scenario import KINDS, kind_of, random_scenario
from outrider.cluster.simulate.compare import ComparedFigures, compare
from outrider.cluster.simulate.scenario import Scenario

SEEDS = range(60)

ROW: dict[str, Any] = {
    "kind": "gpu",
    "speed_up": 1.0,
    "over_lockstep": 1.0,
    "failed": 0,
    "equal": True,
}


@pytest.fixture(scope="module")
def scenarios() -> list[Scenario]:
    """One of each seed."""
    return [random_scenario(seed) for seed in SEEDS]


def test_a_seed_is_one_scenario(scenarios: list[Scenario]) -> None:
    """And others are others."""
    again = SEEDS[: 2 * len(KINDS)]
    assert scenarios[: len(again)] == [random_scenario(seed) for seed in again]
    assert len({one.model_dump_json(exclude={"name", "seed"}) for one in scenarios}) == len(SEEDS)


def test_kinds_are_what_they_say(scenarios: list[Scenario]) -> None:
    """Each is one of so many seeds in a row; a device that is shared is shared by all."""
    assert {kind_of(seed) for seed in range(7, 7 + len(KINDS))} == set(KINDS)
    for seed, scenario in zip(SEEDS, scenarios, strict=True):
        kind = kind_of(seed)
        actors = (*scenario.targets, *scenario.drafters)
        assert scenario.name == f"{kind}-{seed}"
        assert [one.on_cores for one in actors] == [kind == "cores"] * len(actors)
        assert [one.gpu is not None for one in actors] == [kind == "gpu"] * len(actors)
        assert (len(scenario.load) > 1) == (kind == "steps")
        assert bool(scenario.waves) == (kind == "waves")


def test_everything_goes_wrong_at_some_seed(scenarios: list[Scenario]) -> None:
    """No fault is left out, and most scenarios have none."""
    faults = [fault.what for scenario in scenarios for fault in scenario.faults]
    assert set(faults) == {"dies", "slows", "misleads", "pauses", "cut", "link"}
    assert sum(not scenario.faults for scenario in scenarios) > len(SEEDS) / 2


def test_a_quick_run_has_a_row_of_each_kind() -> None:
    """With the outputs of plain decoding, and no request that failed."""
    rows = list(random_scenarios_suite.run(is_quick=True))
    assert [row["kind"] for row in rows] == list(KINDS)
    for row in rows:
        assert row["equal"]
        assert row["failed"] == 0
        assert row["plain_tokens_per_s"] > 0.0
        assert row["tokens_per_pass"] >= 1.0


def test_seeds_and_kinds_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a scenario that loses can be run alone."""
    monkeypatch.setattr(random_scenarios_suite, "row_of", lambda seed, length: ROW | {"seed": seed})
    seeds = [row["seed"] for row in random_scenarios_suite.run(seed=9, count=12, parts=["gpu"])]
    assert seeds == [9, 15]


@pytest.mark.parametrize("failed", [0, 1])
def test_an_output_that_differs_is_told(monkeypatch: pytest.MonkeyPatch, failed: int) -> None:
    """Beside a request that failed, and without one."""

    def broken(scenario: Scenario) -> ComparedFigures:
        told = ("lockstep differs", "1 requests failed")[: 1 + failed]
        return replace(compare(scenario), failed=failed, broken=told)

    monkeypatch.setattr(random_scenarios_suite, "compare", broken)
    row = random_scenarios_suite.row_of(0, length=0.01)
    assert not row["equal"]
    assert row["failed"] == failed


def test_the_summary_names_what_is_slower() -> None:
    """By its seed, so that it can be run again."""
    rows = [ROW | {"seed": 3}, ROW | {"seed": 9, "speed_up": 0.9}]
    lines = list(random_scenarios_suite.summary(rows))
    assert "over plain 0.90 at least, below 0.98 in 1 (seeds 9)" in lines[0]
    assert "over lock-step 1.00 at least, below 0.98 in 0" in lines[0]
    assert "differ in 0" in lines[-1]
