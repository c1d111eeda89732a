"""`outrider trace`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.client.timeline.build import service

from outrider.client.timeline.summary import summarise
from outrider.client.timeline.timeline_file import load, save

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import Failure, FakeService


@pytest.fixture
def traced(fake: FakeService) -> FakeService:
    """A service whose trace is known."""
    fake.trace_responses = service().end()
    return fake


def test_the_whole_service(run: Run, traced: FakeService, tmp_path: Path) -> None:
    """A file for the viewer, and the summary in words."""
    file = tmp_path / "t.json"
    result = run("trace", "-a", traced.address, "--out", str(file))
    assert result.exit_code == 0, result.output
    (asked,) = traced.trace_requests
    assert (asked.request_id, asked.seconds, asked.nodes) == ("", 5.0, False)
    assert "pool hit rate 50.0%" in result.stdout
    assert f"timeline: {file}" in result.stdout
    assert summarise(load(file)).rounds.committed == 6


def test_summary_of_a_saved_file(run: Run, tmp_path: Path) -> None:
    """The same words, without any service."""
    file = tmp_path / "t.json"
    save(service().timeline(), file)
    result = run("trace", str(file), "--summary")
    assert result.exit_code == 0
    assert "pool hit rate 50.0%" in result.stdout
    value = json.loads(run("trace", str(file), "--json").stdout)
    assert value["rounds"]["hit_rate"] == 0.5
    assert value["fates"]["verified"] == 3
    assert value["actors"][0]["busy"] == pytest.approx(0.4)
    assert value["actors"][0]["spent_us"]["verify"] == 20_000.0


def test_json(run: Run, traced: FakeService, tmp_path: Path) -> None:
    """One object on a line, and nothing else."""
    file = tmp_path / "t.json"
    result = run("trace", "-a", traced.address, "-o", str(file), "--json", "--seconds", "2")
    value = json.loads(result.stdout)
    assert value["file"] == str(file)
    assert traced.trace_requests[0].seconds == 2.0


def test_a_prompt_is_sent_when_recording_has_begun(
    run: Run, traced: FakeService, tmp_path: Path
) -> None:
    """The trace is of the very request that is sent."""
    file = tmp_path / "t.json"
    result = run(
        "trace",
        "-a",
        traced.address,
        "--prompt",
        "Once",
        "--max-tokens",
        "5",
        "--model",
        "demo",
        "-o",
        str(file),
    )
    assert result.exit_code == 0, result.output
    (asked,), (sent,) = traced.trace_requests, traced.requests
    assert asked.request_id == sent.request_id != ""
    assert asked.seconds == 60.0
    assert (sent.text, sent.model, sent.sampling.max_tokens) == ("Once", "demo", 5)


def test_a_request_by_its_name(run: Run, traced: FakeService, tmp_path: Path) -> None:
    """Nothing is sent but the wish to see it."""
    run("trace", "-a", traced.address, "-r", "mine", "--nodes", "-o", str(tmp_path / "t.json"))
    (asked,) = traced.trace_requests
    assert (asked.request_id, asked.nodes) == ("mine", True)
    assert traced.requests == []


def test_no_words(run: Run, traced: FakeService, tmp_path: Path) -> None:
    """`--no-summary` leaves only where the file is."""
    result = run("trace", "-a", traced.address, "-o", str(tmp_path / "t.json"), "--no-summary")
    assert len(result.stdout.splitlines()) == 1


def test_a_folder_that_is_not_there(run: Run, traced: FakeService, tmp_path: Path) -> None:
    """Is told before anything is asked of the service."""
    result = run("trace", "-a", traced.address, "-o", str(tmp_path / "none" / "t.json"))
    assert result.exit_code == 2
    assert "does not exist" in result.stderr
    assert traced.trace_requests == []


@pytest.mark.parametrize("seconds", ["0", "-1", "601", "nan"])
def test_times_that_are_none(run: Run, traced: FakeService, tmp_path: Path, seconds: str) -> None:
    """Refused here, by name."""
    result = run("trace", "-a", traced.address, "-o", str(tmp_path / "t"), "--seconds", seconds)
    assert result.exit_code == 2
    assert "seconds" in result.stderr
    assert traced.trace_requests == []


def test_a_file_and_a_service_at_once(run: Run, tmp_path: Path) -> None:
    """One of the two."""
    file = tmp_path / "t.json"
    save(service().timeline(), file)
    own = (("--out", "x"), ("--seconds", "1"), ("-r", "x"), ("-p", "x"), ("--nodes",))
    for flags in (*own, ("--seed", "1"), ("--plain",)):
        result = run("trace", str(file), *flags)
        assert result.exit_code == 2
        assert "saved timeline" in result.stderr


@pytest.mark.parametrize("flags", [("-m", "demo"), ("--seed", "0"), ("-n", "5"), ("--plain",)])
def test_how_nothing_is_answered(
    run: Run, traced: FakeService, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Options of a prompt that is not given are refused; a trace that seems to heed them would mislead."""
    result = run("trace", "-a", traced.address, "-o", str(tmp_path / "t.json"), *flags)
    assert result.exit_code == 2
    assert "--prompt" in result.stderr
    assert traced.trace_requests == []


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"traceEvents": []}'])
def test_a_file_that_is_no_timeline(run: Run, tmp_path: Path, content: str) -> None:
    """Named, with what is wrong; no traceback."""
    file = tmp_path / "t.json"
    file.write_text(content)
    result = run("trace", str(file))
    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert run("trace", str(tmp_path / "none")).exit_code == 2


def test_errors_of_the_service(
    run: Run, traced: FakeService, failure: type[Failure], closed_port: str, tmp_path: Path
) -> None:
    """Each cause has its exit code, and no file is left."""
    import grpc

    file = tmp_path / "t.json"
    for code, exit_code in (
        (grpc.StatusCode.NOT_FOUND, 2),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 3),
        (grpc.StatusCode.INTERNAL, 1),
    ):
        traced.trace_failures = [failure(code=code)]
        result = run("trace", "-a", traced.address, "-o", str(file), "--json")
        assert result.exit_code == exit_code
        assert json.loads(result.stdout)["error"]["code"] == code.name
    assert run("trace", "-a", closed_port, "-o", str(file)).exit_code == 3
    assert not file.exists()


def test_control_characters_of_a_name_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    """A file from somewhere else may hold anything."""
    made = service()
    for response in made.responses:
        if response.HasField("source"):
            response.source.name += "\x1b[31m"
    file = tmp_path / "t.json"
    collected = made.timeline()
    save(collected, file)
    result = run("trace", str(file))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
