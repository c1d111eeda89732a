"""The command line of benchmarks: words that a suite cannot take are refused before anything runs."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from bench.__main__ import SUITES, main, problem_of
from bench.report import rows as results
from bench.suites.virtual.real_models_suite import run as predicted_models


def refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> str:
    """What the command says."""
    monkeypatch.setattr(sys, "argv", ["bench", *words, "--quick"])
    with pytest.raises(SystemExit, match="2"):
        main()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--levels 1,x", "--levels: must be a whole number, at least 1, but is 'x'"),
        ("--levels 0", "--levels: must be a whole number, at least 1, but is '0'"),
        ("--temperatures warm", "--temperatures: must be a number from 0 to 100, but is 'warm'"),
        ("--temperatures nan", "--temperatures: must be a number from 0 to 100"),
        ("--runs 0", "--runs: must be a whole number, at least 1"),
        ("--count -1", "--count: must be a whole number, at least 1"),
        ("plan --only closed", "plan: --only: there is no 'closed'; choose among measured, closed"),
        ("selectors plan --only scale", "selectors: --only: there is no 'scale'"),
    ],
)
def test_what_nobody_can_do_is_refused_by_name(
    words: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of all suites that are asked for, before the first one."""
    assert says in refusal(monkeypatch, capsys, *words.split())


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_refuses_words_that_it_does_not_know(suite: str) -> None:
    """Of each option that says what is measured."""
    run = import_module(SUITES[suite]).run
    names = run.__code__.co_varnames[: run.__code__.co_kwonlyargcount]
    for name in {"part", "parts", "profiles", "laws", "drafting"} & {*names}:
        given = "no such" if name == "part" else ["no such"]
        assert "no such" in problem_of(suite, {name: given})


def test_parts_of_the_table_are_taken() -> None:
    """Those of `docs/benchmarks.md`."""
    for suite, parts in {
        "single": ["shipped", "12"],
        "delay": ["0", "quarter", "2.5"],
        "load": ["1", "64"],
        "grid": ["1", "256"],
        "equality": ["draft", "draft + prompt_lookup"],
        "drafters": ["code"],
    }.items():
        assert not problem_of(suite, {"parts": parts})
    assert not problem_of("drafters", {"part": "slow", "drafting": ["led", "served"]})
    assert not problem_of(
        "emulated", {"profiles": ["h100-8b", "10ms+10us:1ms"], "laws": ["agree70"]}
    )


def test_several_targets_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only a single one."""
    measured = [{"part": part, "temperature": 0.0} for part in ("shipped", "12", "25")]
    monkeypatch.setattr(results, "read", lambda suite: measured)
    monkeypatch.setattr("bench.suites.virtual.real_models_suite.predicted", lambda row: row)
    assert [row["part"] for row in predicted_models(parts=["shipped", "25"])] == ["shipped", "25"]
