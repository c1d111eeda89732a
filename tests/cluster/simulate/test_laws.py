"""Laws of a scenario that are tables of the user's: which can draft for which."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from outrider.actors.engine.tables.token_table import random_table
from outrider.client.cli.app import app
from outrider.cluster.simulate.compare import compare
from outrider.cluster.simulate.scenario import load_scenario
from outrider.cluster.simulate.simulate_command import quiet

WIDTH = 96
"""Tokens of a law."""


def scenario(folder: Path, *, target: str, drafter: str, fault: str = "") -> Path:
    """A file; models that end with `.npz` are in the folder."""
    of = [f"tabular:{folder / one}" if one.endswith(".npz") else one for one in (target, drafter)]
    file = folder / "scenario.yaml"
    file.write_text(
        "seconds: 0.4\n"
        f"targets: [{{name: t, model: '{of[0]}', profile: 10ms+10us, slots: 4}}]\n"
        f"drafters: [{{name: d, model: '{of[1]}', profile: 0.5ms+1us, slots: 4}}]\n"
        "load: [{clients: 2, tokens: 50, prompt: 8}]\n"
        + (
            f"faults: [{{at_s: 0.1, what: misleads, who: d, model: 'tabular:{folder / fault}'}}]\n"
            * bool(fault)
        )
    )
    return file


@pytest.mark.parametrize(
    ("target", "drafter", "fault"),
    [
        ("law:agree70", "narrow.npz", ""),
        ("narrow.npz", "law:agree70/draft", ""),
        ("law:agree70", "law:agree70/draft", "narrow.npz"),
    ],
)
def test_laws_of_other_tokens_are_refused(
    tmp_path: Path, target: str, drafter: str, fault: str
) -> None:
    """Before anything runs, in the words of a service whose drafter and target differ."""
    random_table(5, 1, seed=1).save(tmp_path / "narrow.npz")
    file = scenario(tmp_path, target=target, drafter=drafter, fault=fault)
    done = CliRunner().invoke(app, ["simulate", str(file)])
    assert done.exit_code == 2, done.output
    assert "d cannot follow" in done.output
    assert "which ids they share" in done.output


@pytest.mark.parametrize(
    ("target", "drafter", "fault"),
    [
        ("law:agree70", "short.npz", ""),
        ("short.npz", "law:agree70/draft", ""),
        ("law:agree70", "law:agree70/draft", "short.npz"),
        ("two.npz", "two.npz", ""),
    ],
)
def test_laws_may_look_back_less_and_have_few_tokens(
    tmp_path: Path, target: str, drafter: str, fault: str
) -> None:
    """A drafter need not depend on as many tokens as its target; outputs are those of plain decoding."""
    random_table(WIDTH, 1, seed=1).save(tmp_path / "short.npz")
    random_table(2, 0, seed=1).save(tmp_path / "two.npz")
    file = scenario(tmp_path, target=target, drafter=drafter, fault=fault)
    with quiet():
        figures = compare(load_scenario(file))
    assert not figures.broken
    assert figures.tokens_per_pass >= 1.0
