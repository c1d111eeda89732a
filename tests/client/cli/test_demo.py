"""`outrider demo` as its user sees it, with a scripted service in the place of the one that it starts."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.client.timeline.build import service

from outrider.client.timeline.summary import summarise
from outrider.client.timeline.timeline_file import load
from outrider.cluster.start import launch

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import Failure, FakeService
    from typer.testing import Result

TEXTS = 6
"""With `--quick`: three prompts at two temperatures."""

Demo = Callable[..., "Result"]


@dataclass
class Started:
    """What takes the place of a running service."""

    address: str
    has_ended: bool = False


@pytest.fixture
def started(fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> Started:
    """The service that the demonstration starts."""
    made = Started(fake.address)

    @contextmanager
    def start(*_: object, **__: object) -> Iterator[Started]:
        try:
            yield made
        finally:
            made.has_ended = True

    monkeypatch.setattr(launch, "start_service", start)
    fake.trace_responses = service().end()
    return made


@pytest.fixture
def demo(run: Run, started: Started, tmp_path: Path) -> Demo:
    """Runs `outrider demo --quick`; its timeline goes to `t.json`."""

    def quick(*arguments: str) -> Result:
        result = run("demo", "--quick", "-n", "9", "--trace", str(tmp_path / "t.json"), *arguments)
        assert started.has_ended
        return result

    return quick


def test_texts_are_decoded_both_ways_and_are_equal(demo: Demo, fake: FakeService) -> None:
    """With the same options but for speculation, after a prompt that is not measured; all plain ones first. Both are recorded."""
    result = demo()
    assert len(fake.trace_requests) == 2
    assert result.exit_code == 0, result.output
    assert result.stdout.count("same text as plain decoding") == TEXTS
    assert f"{TEXTS} of {TEXTS} texts equal plain decoding" in result.stdout
    warm_up, measured = fake.requests[:4], fake.requests[4:]
    plain, fast = measured[:TEXTS], measured[TEXTS:]
    for one, other in zip(plain, fast, strict=True):
        assert (one.speculation.enabled, other.speculation.enabled) == (False, True)
        assert (one.WhichOneof("prompt"), one.text, one.chat) == (
            other.WhichOneof("prompt"),
            other.text,
            other.chat,
        )
        assert one.sampling == other.sampling
        assert one.sampling.max_tokens == 9
    temperatures = [one.sampling.temperature for one in plain]
    assert temperatures == pytest.approx([0.0] * 3 + [0.8] * 3)
    assert {one.text for one in warm_up}.isdisjoint(one.text for one in measured if one.text)


def test_what_is_shown(demo: Demo, fake: FakeService, tmp_path: Path) -> None:
    """Each text whole, who the colours are, tokens a pass, speed-up, acceptance by depth, where the time went, the file."""
    shown = demo().stdout
    text = fake.output(0, max_tokens=9).decode()
    assert shown.count(text) == TEXTS
    assert "target  draft-small  draft-tiny" in shown
    assert "Photosynthesis is the process by which plants" + text in shown
    assert shown.count("9 tokens, 2.50 a target pass") == TEXTS
    assert shown.count("speed-up") == 2
    assert shown.count("0.88 0.50") == 4  # two tables of two columns
    assert "pool hit rate 50.0%" in shown
    assert f"timeline: {tmp_path / 't.json'}" in shown
    assert summarise(load(tmp_path / "t.json")).rounds.committed == 6


def test_a_text_that_differs_fails(demo: Demo, fake: FakeService) -> None:
    """It says where, and that nothing explains it."""
    fake.plain_differs = True
    result = demo()
    assert result.exit_code == 1
    assert result.stdout.count("differs from plain decoding at token 0, NOT explained") == TEXTS
    assert f"0 of {TEXTS} texts equal" in result.stdout


def test_quick_means_fewer_and_shorter_texts(run: Run, started: Started, fake: FakeService) -> None:
    """Each category once, with `--quick` three, and no text is then as long as it was wanted."""
    arguments = ("demo", "-n", "1000", "--trace", os.devnull)
    assert run(*arguments, "--quick").exit_code == 0
    assert {one.sampling.max_tokens for one in fake.requests} == {64}
    few = len(fake.requests)
    assert run(*arguments).exit_code == 0
    assert {one.sampling.max_tokens for one in fake.requests[few:]} == {1000}
    assert len(fake.requests) - few == 4 + 2 * (few - 4) == 4 + 4 * TEXTS


def test_models_without_a_chat_template(demo: Demo, fake: FakeService) -> None:
    """Nothing is asked in the form of a conversation."""
    fake.has_chat_template = False
    assert demo().exit_code == 0
    assert {one.WhichOneof("prompt") for one in fake.requests} == {"text"}


def test_colours_and_none(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours tell the drafters; with `--no-color` there is none."""
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[32m" in demo().stdout
    assert "\x1b[32m" not in demo("--no-color").stdout


def test_emulated(demo: Demo) -> None:
    """Said beside both tables and the timeline, and at the end."""
    shown = " ".join(demo("--emulate", "h100-8b").stdout.split())
    assert shown.count("emulated: h100-8b") == 3
    assert "every time and speed above is emulated" in shown


def test_json(demo: Demo, fake: FakeService, tmp_path: Path) -> None:
    """One object on a line, and nothing else on stdout."""
    result = demo("--json")
    value: dict[str, Any] = json.loads(result.stdout)
    assert [one["plan"]["temperature"] for one in value["by_temperature"]] == [0.0, 0.8]
    for one in value["by_temperature"]:
        assert one["comparison"]["equal"] == one["comparison"]["pairs"] == len(one["texts"]) == 3
        assert one["figures"]["mean_tokens_per_pass"] == pytest.approx(2.5)
        assert one["texts"][0] == fake.output(0, max_tokens=9).decode()
    assert value["timeline"]["rounds"]["hit_rate"] == 0.5
    assert value["timeline"]["file"] == str(tmp_path / "t.json")


def test_failed_trace_costs_the_timeline_only(
    demo: Demo, fake: FakeService, failure: type[Failure], tmp_path: Path
) -> None:
    """If nothing can be recorded, the texts are still told."""
    refused = failure(code=grpc.StatusCode.RESOURCE_EXHAUSTED, details="four run")
    fake.trace_failures = [refused, refused]
    result = demo("--json")
    assert result.exit_code == 0
    assert "no timeline: four run" in result.stderr
    assert json.loads(result.stdout)["timeline"] is None
    assert not (tmp_path / "t.json").exists()


def test_failed_request_is_told(demo: Demo, fake: FakeService, failure: type[Failure]) -> None:
    """In plain words, and the service is ended."""
    fake.failures = [failure(code=grpc.StatusCode.INTERNAL, details="the target is gone")]
    result = demo()
    assert result.exit_code == 1
    assert "error: a request failed: the target is gone" in result.stderr


def test_timeline_that_cannot_be_written(run: Run, started: Started, tmp_path: Path) -> None:
    """A folder that is missing is told before anything starts; what else is wrong, at the end."""
    result = run("demo", "--trace", str(tmp_path / "none" / "t.json"))
    assert result.exit_code == 2
    assert "does not exist" in result.stderr
    assert not started.has_ended
    result = run("demo", "--quick", "-n", "9", "--trace", str(tmp_path))
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("to_all", [False, True], ids=["alone", "to-all"])
def test_signal_ends_it(
    demo: Demo, fake: FakeService, tmp_path: Path, number: signal.Signals, code: int, to_all: bool
) -> None:
    """Amid a text, which never ends; also if the service gets the signal first, and requests fail."""
    fake.stall_from = 6

    def interrupt() -> None:
        while len(fake.requests) < 7:
            fake.began.wait(60)
            fake.began.clear()
        os.kill(os.getpid(), number)
        if to_all:
            fake.kill()

    threading.Thread(target=interrupt, daemon=True).start()
    result = demo()
    assert result.exit_code == code
    assert "interrupted" in result.stderr
    assert "error:" not in result.stderr
    assert not (tmp_path / "t.json").exists()
