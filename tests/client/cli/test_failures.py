"""How commands fail: one exit code a cause, a line on stderr, with --json one object on stdout, and never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import outrider
from outrider.client.blocking import Client
from outrider.client.cli.shared.exits import ExitCode, failure_of

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import FakeService

KEYS = {"kind", "message", "exit_code", "code", "field", "request_id", "retry_after_s"}


@pytest.mark.parametrize(
    ("arguments", "code", "kind"),
    [
        (("models", "-a", "{closed}"), ExitCode.UNAVAILABLE, "Unavailable"),
        (("status", "-a", "{closed}"), ExitCode.UNAVAILABLE, "Unavailable"),
        (("status", "--ready-file", "{missing}"), ExitCode.UNAVAILABLE, "Unavailable"),
        (("models", "-a", "a\udcffb"), ExitCode.INVALID, "InvalidRequest"),
        (("models", "-a", "{fake}", "--timeout", "nan"), ExitCode.INVALID, "InvalidRequest"),
        (("generate", "hi", "-a", "{fake}", "-m", "other"), ExitCode.INVALID, "NotFound"),
        (("generate", "hi", "--nonsense"), ExitCode.INVALID, "Usage"),
        (("generate", "hi", "--tokens", "1"), ExitCode.INVALID, "Usage"),
        (("generate", "hi", "--logit-bias", "x"), ExitCode.INVALID, "Usage"),
        (("generate", "--tokens", "9" * 5000), ExitCode.INVALID, "InvalidRequest"),
        (("status", "--watch"), ExitCode.INVALID, "Usage"),
        (("bench", "--seeds", "x"), ExitCode.INVALID, "Usage"),
        (("bench", "--prompts", "{missing}"), ExitCode.INVALID, "InvalidRequest"),
        (("bench", "--prompts", "{deep}"), ExitCode.INVALID, "InvalidRequest"),
        (("trace", "{missing}"), ExitCode.INVALID, "Usage"),
        (("trace", "{deep}"), ExitCode.INVALID, "Usage"),
        (("trace", "{folder}"), ExitCode.INVALID, "Usage"),
        (("status", "--ready-file", "{deep}"), ExitCode.INVALID, "InvalidRequest"),
        (("trace", "-p", "hi", "-a", "{fake}", "--out", "{folder}"), ExitCode.INVALID, "Usage"),
        (("config", "validate", "{deep}"), ExitCode.INVALID, "Usage"),
        (("config", "validate", "{circle}"), ExitCode.INVALID, "Usage"),
        (("simulate", "{missing}"), ExitCode.INVALID, "Usage"),
        (("plan", "{folder}"), ExitCode.INVALID, "Usage"),
        (("train", "demo", "--data", "{missing}", "--out", "{out}"), ExitCode.INVALID, "Usage"),
        (("train", "demo", "--data", "{folder}", "--out", ""), ExitCode.INVALID, "Usage"),
        (("train", "decision", "--data", "{missing}"), ExitCode.INVALID, "Usage"),
    ],
)
def test_a_failure_has_one_code_one_line_and_one_object(
    run: Run,
    fake: FakeService,
    closed_port: str,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: ExitCode,
    kind: str,
) -> None:
    """The same for every command, whoever finds the fault."""
    deep = tmp_path / "deep.jsonl"
    deep.write_text("[" * 100_000)
    circle = tmp_path / "circle.yaml"
    circle.write_text("a: &a [*a]")
    places = {
        "closed": closed_port,
        "fake": fake.address,
        "missing": str(tmp_path / "missing"),
        "out": str(tmp_path / "out"),
        "folder": str(tmp_path),
        "deep": str(deep),
        "circle": str(circle),
    }
    result = run(*(one.format(**places) for one in arguments), "--json")
    assert result.exit_code == code, result.output
    error = json.loads(result.stdout)["error"]
    assert error.keys() == KEYS
    assert (error["exit_code"], error["kind"]) == (code, kind)
    assert error["message"]
    assert result.stderr
    assert len(result.stderr) < 2000


def test_a_fault_of_our_own_is_told_as_one(
    run: Run, fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a line; where it lies is for those who ask."""

    def break_down(self: Client, **_: object) -> None:
        raise ZeroDivisionError("never thought of")

    monkeypatch.setattr(Client, "models", break_down)
    result = run("models", "-a", fake.address)
    assert result.exit_code == ExitCode.FAILURE
    assert "ZeroDivisionError: never thought of" in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("OUTRIDER_TRACEBACK", "1")
    assert "Traceback" in run("models", "-a", fake.address).stderr


@pytest.mark.parametrize(
    ("package", "says"),
    [
        (Path(outrider.__file__).parent / "cluster", "pip install 'outrider[serve]'"),
        (Path("/other"), "acme_nowhere is missing, which /other/plugin.py imports"),
    ],
)
def test_a_package_that_is_missing_is_told_by_who_needs_it(package: Path, says: str) -> None:
    """Ours is of the serving packages; what a plug-in imports is not."""
    code = compile("import acme_nowhere", str(package / "plugin.py"), "exec")
    with pytest.raises(ModuleNotFoundError) as caught:
        exec(code, {})  # noqa: S102 - a word of our own
    assert says in failure_of(caught.value).message
