"""The files that the documentation shows are right."""

from __future__ import annotations

import re
from pathlib import Path

from outrider.cluster.plan.plan_request import load_request
from outrider.cluster.simulate.compare import compare
from outrider.cluster.simulate.scenario import load_scenario
from outrider.cluster.simulate.simulate_command import quiet

DOCS = Path(__file__).parents[3] / "docs"


def shown(page: str, folder: Path) -> Path:
    """The first YAML of a page, as a file."""
    found = re.search(r"```yaml\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    file = folder / "shown.yaml"
    file.write_text(found[1], encoding="utf-8")
    return file


def test_the_scenario_that_is_shown_is_one(tmp_path: Path) -> None:
    """With faults and waves, and its bounds hold until the last fault."""
    scenario = load_scenario(shown("simulation.md", tmp_path))
    assert scenario.faults
    assert scenario.waves
    last_s = max(fault.at_s for fault in scenario.faults)
    with quiet():
        assert not compare(scenario.model_copy(update={"seconds": last_s + 0.5}), []).broken


def test_the_plan_that_is_shown_is_one(tmp_path: Path) -> None:
    """With two drafters."""
    assert len(load_request(shown("scale.md", tmp_path)).drafters) == 2
