"""How processes write logs."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress

import pytest
import structlog

from outrider.actors.process.logs import FORMAT_VARIABLE, LogFormat, LogSettings, configure_logs


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other tests log as they did."""
    monkeypatch.delenv(FORMAT_VARIABLE, raising=False)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    logging.captureWarnings(False)
    root.handlers[:], root.level = handlers, level


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What was written to stderr."""
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("by_variable", [False, True])
def test_json_has_one_object_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    """Own events, those of libraries, exceptions and Python's warnings, each with the actor and a time in UTC."""
    if by_variable:
        monkeypatch.setenv(FORMAT_VARIABLE, "json")
    settings = LogSettings(level="info", format=None if by_variable else LogFormat.JSON)
    configure_logs(settings, actor="target-0")
    log = structlog.get_logger("test")
    log.info("session opened", request_id="r1", number=3)
    log.debug("not shown")
    logging.getLogger("library").warning("disk %s", "full")
    try:
        raise RuntimeError("no\nluck")
    except RuntimeError:
        log.exception("pass failed")
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # In tests they are errors.
        warnings.warn("soon\nelsewhere", FutureWarning, stacklevel=1)

    opened, full, failed, warned = map(json.loads, lines(capsys))
    assert (opened["event"], opened["request_id"], opened["number"]) == ("session opened", "r1", 3)
    assert (full["event"], full["level"], full["actor"]) == ("disk full", "warning", "target-0")
    assert failed["exception"][0]["exc_value"] == "no\nluck"
    assert "FutureWarning: soon\nelsewhere" in warned["event"]
    assert {one["actor"] for one in (opened, full, failed, warned)} == {"target-0"}
    assert opened["timestamp"].endswith("Z")


@pytest.mark.parametrize("form", LogFormat)
def test_tracebacks_tell_no_values(capsys: pytest.CaptureFixture[str], form: LogFormat) -> None:
    """They say where it went wrong; what variables held, prompts and tokens of clients among it, is nobody's business."""
    configure_logs(LogSettings(format=form), actor="target-0")
    prompt = "a secret"
    try:
        raise RuntimeError(f"of {len(prompt)}")
    except RuntimeError:
        structlog.get_logger("test").exception("pass failed")
    said = capsys.readouterr().err
    assert "of 8" in said
    assert "test_tracebacks_tell_no_values" in said
    assert prompt not in said


def test_lines_for_people_name_the_actor(capsys: pytest.CaptureFixture[str]) -> None:
    """The form without any setting."""
    configure_logs(LogSettings(level="debug"), actor="draft-0")
    structlog.get_logger("test").debug("session attached", request_id="r1")
    (line,) = lines(capsys)
    assert "session attached" in line
    assert "actor=draft-0" in line
    assert "request_id=r1" in line


def test_what_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A level, and a format in the environment."""
    with pytest.raises(ValueError, match="log level is 'loud'; allowed: debug"):
        configure_logs(LogSettings(level="loud"), actor="a")
    monkeypatch.setenv(FORMAT_VARIABLE, "xml")
    with pytest.raises(ValueError, match="OUTRIDER_LOG_FORMAT is 'xml'; allowed: console, json"):
        configure_logs(LogSettings(), actor="a")


@pytest.mark.parametrize("form", LogFormat)
def test_a_line_that_cannot_be_written_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, form: LogFormat
) -> None:
    """Whoever logs on a full disk goes on with its work, with our own lines and with those of libraries."""
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        configure_logs(LogSettings(level="info", format=form), actor="target-0")
        log = structlog.get_logger("test")
        for number in range(3):
            log.warning("session ended", number=number)
            logging.getLogger("library").warning("disk full")
        try:
            raise RuntimeError("of a request")
        except RuntimeError:
            log.exception("a request failed")
        # What is still in its buffer fails again when it is closed.
        monkeypatch.undo()
        with suppress(OSError):
            full.close()
