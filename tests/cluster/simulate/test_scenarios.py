"""Scenario files, and what the command says of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.client.cli.app import app
from outrider.cluster.config.config_actors import MAX_SLOTS
from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.simulate.compare import compare, difference, run
from outrider.cluster.simulate.scenario import load_scenario
from outrider.cluster.simulate.simulate_command import quiet
from outrider.cluster.simulate.simulated_service import SimulatedMode, SimulatedService
from outrider.cluster.simulate.traffic import A_STEP

FOLDER = Path(__file__).parents[3] / "bench" / "scenarios"

SHORT = {
    "core-lost": 10,
    "far-20ms": 6,
    "frozen-crowd": 5,
    "hard-text": 9,
    "near": 8,
    "one-core": 36,
    "one-core-pays": 6,
    "one-gpu": 12,
    "quarter": 7,
    "shared-core": 9,
}
"""Scenarios that small changes of the scheduler have broken, and virtual seconds that hold all their faults and the windows of their bounds."""

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


@pytest.mark.parametrize(("name", "seconds"), SHORT.items(), ids=SHORT)
def test_bounds_of_short_scenarios_hold(name: str, seconds: float) -> None:
    """In the ways that they compare. In full, with the others: `make scenarios`."""
    scenario = load_scenario(FOLDER / f"{name}.yaml").model_copy(update={"seconds": seconds})
    with quiet():
        figures = compare(scenario, [] if scenario.bounds.over_lockstep is None else SimulatedMode)
    assert not figures.broken


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("prifile: x", "unknown key 'prifile'"),
        ("faults: [{at_s: 1, what: dies, who: nobody}]", "'nobody' of a fault is neither"),
        ("load: []", "nobody asks for anything"),
        ("load: [{clients: 0}]", "nobody asks for anything"),
        ("targets: [{name: t, model: law:agree99, profile: 1ms}]", "there is no law"),
        ("targets: [{name: t, model: law:agree70, profile: h200-8b}]", "there is no profile"),
        ("faults: [{at_s: 1, what: explodes, who: t}]", "faults[0].what"),
        ("faults: [{at_s: 1, what: cut, who: t}]", "'cut' happens to a drafter, which 't' is not"),
        ("faults: [{at_s: 1, what: misleads, who: t}]", "'misleads' happens to a drafter"),
        ("faults: [{at_s: 1, what: cores, who: t, cores: 1}]", "happens to a machine"),
        ("faults: [{at_s: 1, what: link, who: d}]", "needs the key 'link'"),
        ("faults: [{at_s: 1, what: pauses, who: d}]", "needs the key 'seconds'"),
        ("faults: [{at_s: 1, what: misleads, who: d, model: law:none}]", "there is no law"),
        ("coordinator_machine: box", "machine 'box' of coordinator is not among machines"),
        ("machines: {t: 2}", "called 't'"),
        ("verifier: none", "there is no verifier 'none'"),
        ("prices: cheap", "  prices: must be 'measured' or 'free', but is 'cheap'"),
        ("prices: 3", "  prices: must be keys and values, but is 3"),
        ("targets: []", "  targets: must have at least 1 entry"),
        ("waves: 8", "  waves: must be a list, but is 8"),
        ("max_nodes: 257", "max_nodes: must be less than or equal to 256"),
        ("load: [{clients: 1, prompt: 8000, tokens: 193}]", "may be 8192 together"),
        ("waves: [{at_s: 0, every_s: 0.0001, requests: 1}]", "waves[0].every_s"),
        ("seed: -1", "seed: must be greater than or equal to 0"),
        (
            "targets: [{name: t, model: law:agree70, profile: 1ms, slots: 1000000}]",
            f"targets[0].slots: must be less than or equal to {MAX_SLOTS}",
        ),
        (
            "targets: [{name: t, model: law:agree70, profile: 1ms}, {name: u, model: law:agree50, profile: 1ms}]",
            "t decodes law:agree70 and u law:agree50",
        ),
        ("bounds: {speed_up: .nan}", "bounds.speed_up: must be a finite number"),
        (
            "faults: [{at_s: .1, what: slows, who: d}, {at_s: .6, what: dies, who: d}]",
            "faults[1] begins at 0.6 s",
        ),
        (
            "load: [{at_s: 5, clients: 1}]",
            "load[0] begins at 5 s, when the scenario has ended: it has 0.6",
        ),
        ("waves: [{at_s: 1, requests: 1}]", "waves[0] begins at 1 s"),
        (
            "faults: [{at_s: 0, what: dies, who: d, factor: 9}]",
            "'factor' is of 'slows' and does nothing to 'dies'",
        ),
        ("faults: [{at_s: 0, what: cut, who: d, link: {latency_ms: 9}}]", "'link' is of 'link'"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said(tmp_path: Path, line: str, says: str) -> None:
    """By place and value, before anything runs."""
    key = line.split(":")[0]
    kept = [text for text in _blocks(SMALL) if not text.startswith(f"{key}:")]
    file = tmp_path / "wrong.yaml"
    file.write_text("\n".join([*kept, line]))
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        load_scenario(file)
    assert len(caught.value.problems) == 1, "what follows from a mistake is no other"


def test_an_unknown_price_is_named(tmp_path: Path) -> None:
    """Although prices may be said in two ways."""
    file = tmp_path / "wrong.yaml"
    file.write_text(SMALL + "prices: {cheap: 1}\n")
    with pytest.raises(ConfigError, match="unknown key 'cheap'"):
        load_scenario(file)


def test_the_command_tells_figures_and_ends_with_one_if_a_bound_does_not_hold(
    tmp_path: Path,
) -> None:
    """Two scenarios that differ in a bound."""
    holds, breaks = tmp_path / "holds.yaml", tmp_path / "breaks.yaml"
    holds.write_text(SMALL + 'name: "not [/bold]"\n')
    breaks.write_text(SMALL.replace("speed_up: 1.3", "speed_up: 20"))
    done = CliRunner().invoke(app, ["simulate", str(holds)])
    assert (done.exit_code, "holds" in done.stdout) == (0, True), done.output
    assert "emulated" in done.stdout
    done = CliRunner().invoke(app, ["simulate", str(breaks), "--seconds", "0.3"])
    assert done.exit_code == 1
    assert "wanted 20" in done.stdout


def test_a_bound_on_what_cannot_be_known_does_not_hold(tmp_path: Path) -> None:
    """Without a token there are no bytes of a token, few or many."""
    file = tmp_path / "nobody.yaml"
    silent = SMALL.replace("clients: 2", "clients: 2, at_s: 0.599").replace(
        "speed_up: 1.3", "bytes_per_token: 1"
    )
    file.write_text(silent)
    for more in ((), ("--json",)):
        done = CliRunner().invoke(app, ["simulate", str(file), *more])
        assert done.exit_code == 1, done.output
        assert "bytes_per_token unknown, at most 1 wanted" in done.stdout


@pytest.mark.parametrize("what", ["dies", "cut"])
def test_faults_that_overlap_are_over_once(what: str, tmp_path: Path) -> None:
    """Whoever is there again is not started or connected a second time, so it drafts as if there had been one."""
    file = tmp_path / "two.yaml"
    file.write_text(
        SMALL.replace("tokens: 500", "tokens: 32")
        + f"faults: [{{at_s: 0.1, what: {what}, who: d, seconds: 0.2}}, {{at_s: 0.15, what: {what}, who: d, seconds: 0.05}}]\n"
    )
    two = load_scenario(file)
    one = two.model_copy(update={"faults": two.faults[:1]})
    alone, both = (run(each, SimulatedMode.LOCKSTEP).tokens for each in (one, two))
    assert both > 0.8 * alone


def test_a_poor_tree_is_waited_for_where_drafting_is_all_but_free(tmp_path: Path) -> None:
    """Who takes turns waits for whole trees. With nothing to hide, going on with what has survived a verdict would be slower."""
    file = tmp_path / "free.yaml"
    file.write_text(
        SMALL.replace("clients: 2", "clients: 1")
        .replace("agree90", "agree70")
        .replace("0.5ms+1us, slots: 4", "0.2ms+1us, slots: 4, link: {latency_ms: 0}")
        .replace("seconds: 0.6", "seconds: 2\nprices: free")
        .replace("speed_up: 1.3", "over_lockstep: 0.95")
    )
    done = CliRunner().invoke(app, ["simulate", str(file)])
    assert done.exit_code == 0, done.output


def test_a_folder_without_scenarios_is_refused(tmp_path: Path) -> None:
    """And so is a file that is not there, or could not be."""
    for given in (tmp_path, tmp_path / "none.yaml", tmp_path / ("a" * 300)):
        assert CliRunner().invoke(app, ["simulate", str(given)]).exit_code == 2


def test_a_folder_that_cannot_be_looked_into_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of saying that nothing is in it."""

    def refuse(folder: Path) -> list[Path]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    done = CliRunner().invoke(app, ["simulate", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{tmp_path}: cannot be read: Permission denied" in done.output


def _blocks(text: str) -> list[str]:
    """Top-level keys with what belongs to them."""
    blocks: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith(" "):
            blocks[-1] += "\n" + line
        else:
            blocks.append(line)
    return blocks


@pytest.mark.parametrize(
    ("target", "drafter", "is_shared"),
    [
        ("machine: one, on_cores: true", "machine: one, on_cores: true", True),
        ("machine: two, on_cores: true", "machine: two, on_cores: true", False),
        ("machine: one, on_cores: true", "machine: two, on_cores: true", False),
        ("machine: one, on_cores: true", "machine: one", False),
        ("machine: one", "machine: one", False),
        ("gpu: a", "gpu: a", True),
        ("gpu: a", "gpu: b", False),
    ],
)
def test_a_target_knows_who_stands_still_while_its_passes_run(
    tmp_path: Path, target: str, drafter: str, is_shared: bool
) -> None:
    """By the rule of the processes that ship, from the devices of the scenario."""
    file = tmp_path / "small.yaml"
    text = SMALL.replace("seconds: 0.6", "seconds: 0.02\nmachines: {one: 1, two: 2}")
    text = text.replace("{name: t,", f"{{name: t, {target},")
    file.write_text(text.replace("{name: d,", f"{{name: d, {drafter},"), encoding="utf-8")
    service = SimulatedService(load_scenario(file), SimulatedMode.PIPELINED)
    with quiet():
        service.run()
    assert service.targets["t"].core.state.clock.is_shared is is_shared


def test_a_drafter_works_for_the_targets_that_it_names(tmp_path: Path) -> None:
    """And sends nothing to others."""
    file = tmp_path / "two.yaml"
    file.write_text(
        SMALL.replace(
            "targets:",
            "targets:\n  - {name: other, model: law:agree90, profile: 10ms+10us, slots: 4}",
        ).replace("0.5ms+1us,", "0.5ms+1us, targets: [t],")
    )
    service = SimulatedService(load_scenario(file), SimulatedMode.PIPELINED)
    service.run()
    pairs = {frozenset(pair) for pair in service.streams}
    assert frozenset(("d", "t")) in pairs
    assert frozenset(("d", "other")) not in pairs


def test_requests_of_a_step_are_the_same_in_every_mode(tmp_path: Path) -> None:
    """Also where modes reach it at different requests, and its prompts are longer than those before."""
    file = tmp_path / "steps.yaml"
    file.write_text(
        SMALL.replace("tokens: 500, prompt: 8", "tokens: 12, prompt: 8").replace(
            "bounds:", "  - {at_s: 0.3, clients: 2, tokens: 12, prompt: 20}\nbounds:"
        )
    )
    scenario = load_scenario(file)
    plain, piped = (run(scenario, mode) for mode in (SimulatedMode.PLAIN, SimulatedMode.PIPELINED))
    later = [key for key in plain.outputs.keys() & piped.outputs.keys() if key[2] > A_STEP]
    assert later
    assert not difference(plain, piped)
