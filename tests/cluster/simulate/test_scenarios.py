"""Scenario files, and what the command says of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.client.cli.app import app
from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.simulate.scenario import load_scenario

FOLDER = Path(__file__).parents[3] / "bench" / "scenarios"

SMALL = """
about: two requests next to a drafter
seconds: 0.6
targets:
  - {name: t, model: law:agree90, profile: 10ms+10us, slots: 4}
drafters:
  - {name: d, model: law:agree90/draft, profile: 0.5ms+1us, slots: 4}
load:
  - {clients: 2, tokens: 500, prompt: 8}
bounds: {speed_up: 1.3}
"""


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_incident_is_a_scenario(file: Path) -> None:
    """It says what it repeats, and has a bound."""
    scenario = load_scenario(file)
    assert scenario.about
    assert scenario.bounds.model_dump(exclude_none=True)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("prifile: x", "unknown key 'prifile'"),
        ("faults: [{at_s: 1, what: dies, who: nobody}]", "'nobody' of a fault is neither"),
        ("load: []", "nobody asks for anything"),
        ("targets: [{name: t, model: law:agree99, profile: 1ms}]", "there is no law"),
        ("targets: [{name: t, model: law:agree70, profile: h200-8b}]", "there is no profile"),
        ("faults: [{at_s: 1, what: explodes, who: t}]", "faults[0].what"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said(tmp_path: Path, line: str, says: str) -> None:
    """By place and value, before anything runs."""
    key = line.split(":")[0]
    kept = [text for text in _blocks(SMALL) if not text.startswith(f"{key}:")]
    file = tmp_path / "wrong.yaml"
    file.write_text("\n".join([*kept, line]))
    with pytest.raises(ConfigError, match=says.replace("[", r"\[").replace("]", r"\]")):
        load_scenario(file)


def test_the_command_tells_figures_and_ends_with_one_if_a_bound_does_not_hold(
    tmp_path: Path,
) -> None:
    """Two scenarios that differ in a bound."""
    holds, breaks = tmp_path / "holds.yaml", tmp_path / "breaks.yaml"
    holds.write_text(SMALL)
    breaks.write_text(SMALL.replace("speed_up: 1.3", "speed_up: 20"))
    done = CliRunner().invoke(app, ["simulate", str(holds)])
    assert (done.exit_code, "holds" in done.stdout) == (0, True), done.output
    done = CliRunner().invoke(app, ["simulate", str(breaks), "--seconds", "0.3"])
    assert done.exit_code == 1
    assert "wanted 20" in done.stdout


def test_a_folder_without_scenarios_is_refused(tmp_path: Path) -> None:
    """And so is a file that is not there."""
    for given in (tmp_path, tmp_path / "none.yaml"):
        assert CliRunner().invoke(app, ["simulate", str(given)]).exit_code == 2


def _blocks(text: str) -> list[str]:
    """Top-level keys with what belongs to them."""
    blocks: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            blocks[-1] += "\n" + line
        else:
            blocks.append(line)
    return blocks
