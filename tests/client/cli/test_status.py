"""`outrider status` and `outrider models`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outrider.client.cli.commands.status_cli import print_models, print_status, told
from outrider.client.messages.service_info import (
    ActorInfo,
    DrafterInfo,
    Health,
    ModelInfo,
    Status,
    VerifierInfo,
)
from outrider.cluster.process import ready_file_writer

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import FakeService


def test_status(run: Run, fake: FakeService) -> None:
    """People get a line and a table."""
    result = run("status", "-a", fake.address)
    assert result.exit_code == 0
    assert "outrider 0.0.fake: serving, accepts requests" in result.stdout
    assert fake.address in result.stdout


def test_health_is_an_exit_code(run: Run, fake: FakeService, closed_port: str) -> None:
    """For probes: 0 while it serves."""
    result = run("health", "-a", fake.address)
    assert (result.exit_code, result.stdout) == (0, "serving\n")
    assert run("health", "-a", closed_port).exit_code == 3


def test_status_as_json(run: Run, fake: FakeService) -> None:
    """Programs get every field."""
    value = json.loads(run("status", "-a", fake.address, "--json").stdout)
    assert value["health"] == "serving"
    assert (value["running"], value["waiting"], value["finished"]) == (1, 2, 3)
    assert value["actors"][0]["incarnation"] == 7
    assert value["actors"][0]["pid"] == 123


def test_an_actor_that_is_starting_has_no_process_in_json() -> None:
    """A program that took 0 for one would signal itself."""
    state = status_of(replace(ACTOR, pid=0), replace(ACTOR, pid=7))
    assert [actor["pid"] for actor in told(state)["actors"]] == [None, 7]


def test_status_by_ready_file(run: Run, fake: FakeService, tmp_path: Path) -> None:
    """The file that a living service holds says where to ask."""
    file = tmp_path / "ready"
    with ready_file_writer.written(file, address=fake.address, actors=[]):
        result = run("status", "--ready-file", str(file), "-a", "127.0.0.1:1")
    assert result.exit_code == 0, result.output
    assert fake.address in result.stdout


def test_ready_file_that_was_left_is_told(run: Run, tmp_path: Path) -> None:
    """Nobody is asked where only a file remains of a service that was killed; exit code 3, as of one that is not there."""
    file = tmp_path / "ready"
    file.write_text(json.dumps({"address": "127.0.0.1:1", "pid": 7}))
    result = run("status", "--ready-file", str(file))
    assert result.exit_code == 3
    assert f"--ready-file {file} is left over: the service that wrote it (process 7" in (
        result.stderr
    )
    assert run("status", "--ready-file", str(tmp_path / "none")).exit_code == 3
    file.write_text("something else")
    result = run("status", "--ready-file", str(file), "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["field"] == "--ready-file"


def test_models(run: Run, fake: FakeService) -> None:
    """Models, drafters and verifiers are listed."""
    result = run("models", "-a", fake.address)
    assert "demo: 256 tokens, context 512, chat template" in result.stdout
    assert "draft-small" in result.stdout
    value = json.loads(run("models", "-a", fake.address, "--json").stdout)
    assert value["models"][0]["drafters"][0]["method"] == "autoregressive"
    assert value["models"][0]["verifiers"] == ["coupled", "mcsd_with_replacement"]


def test_lossy_verifiers_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """A text of theirs is not the model's own, so who looks for a verifier is told before a request is."""
    infos = (VerifierInfo(name="coupled"), VerifierInfo(name="typical", lossless=False))
    model = replace(MODEL, verifiers=("coupled", "typical"), verifier_infos=infos)
    print_models((model,))
    assert "verifiers coupled, typical (lossy);" in capsys.readouterr().out


NAME = "a-target-model-with-a-name-as-hubs-give-them-70b-instruct"
ADDRESS = "target-host-17.cluster.example.org:46411"
ACTOR = ActorInfo(
    name=f"{NAME}-0",
    role="target",
    address=ADDRESS,
    incarnation=1,
    ready=False,
    model=NAME,
    pid=1234567,
    problem="its tokenizer is not that of the model",
)
MODEL = ModelInfo(
    name=NAME, vocab_size=9, max_context=9, drafters=(DrafterInfo(name=NAME, method="x"),)
)


def status_of(*actors: ActorInfo) -> Status:
    """Of a service with these."""
    return Status(
        version="1", uptime_s=1, running=0, waiting=0, finished=0, accepting=True, actors=actors
    )


def shown() -> None:
    """A status and a model with long names."""
    print_status(status_of(ACTOR), Health.SERVING)
    print_models((MODEL,))


def test_names_are_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """However narrow the terminal around it: a script looks for them. Problems are told with whom they concern."""
    monkeypatch.setenv("COLUMNS", "40")
    shown()
    lines = capsys.readouterr().out.splitlines()
    assert any(f"{NAME}-0 " in line and f" {ADDRESS} " in line for line in lines)
    assert f"{NAME}-0 is not ready: its tokenizer is not that of the model" in lines
    assert any(line.startswith(f"{NAME}: 9 tokens") for line in lines)
    assert any(line.startswith(f"{NAME} ") for line in lines)


def test_bytes_of_hidden_states_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Of drafters that were sent some, and of no others."""
    head = replace(ACTOR, name="head", feedback_bytes=2_340_000, feedback_dropped=7)
    print_status(status_of(ACTOR, head), Health.SERVING)
    said = [line for line in capsys.readouterr().out.splitlines() if "hidden states" in line]
    assert len(said) == 1
    assert said[0].startswith("drafter head was sent 2.3 MB")
    assert said[0].endswith("7 positions were dropped")


def test_what_drafters_have_found_out_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With the drafter's name, and of no others."""
    head = replace(ACTOR, name="head", note="each slot predicts the token behind its own place")
    print_status(status_of(ACTOR, head), Health.SERVING)
    said = [line for line in capsys.readouterr().out.splitlines() if "predicts" in line]
    assert said == ["drafter head: each slot predicts the token behind its own place"]


def test_names_are_folded_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer than the terminal, and nothing is left out."""
    for name, value in {"COLUMNS": "80", "TTY_COMPATIBLE": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NO_COLOR", "1")
    print_status(
        Status(
            version="1",
            uptime_s=1,
            running=0,
            waiting=0,
            finished=0,
            accepting=True,
            actors=(replace(ACTOR, problem=""),),
        ),
        Health.SERVING,
    )
    _, _, *rows = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, rows)) <= 80
    columns = zip(*(row.ljust(80) for row in rows), strict=True)
    gaps = [at for at, pieces in enumerate(columns) if "".join(pieces).isspace()]
    starts = [0, *(at + 1 for at in gaps)]
    cells = [
        "".join(row.ljust(80)[start:end].strip() for row in rows)
        for start, end in zip(starts, [*starts[1:], 80], strict=True)
    ]
    assert {f"{NAME}-0", NAME, ADDRESS} <= set(cells)


def test_nobody_answers(run: Run, closed_port: str) -> None:
    """A dead address ends with 3, a hint, and JSON for programs."""
    result = run("status", "-a", closed_port, "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"]["kind"] == "Unavailable"
    assert "hint:" in result.stderr
