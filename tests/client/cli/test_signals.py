"""The command line as a process: Ctrl-C, a reader that goes away, and streams that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from tests.client.timeline.build import service

from outrider.client.timeline.timeline_file import load

if TYPE_CHECKING:
    from tests.client.conftest import Failure, FakeService

MAIN = """
import signal
# A test run that was started in the background ignores Ctrl-C, and its children would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
from outrider.client.cli import main; main()
"""


@contextmanager
def start(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Starts `outrider` as a process of its own, and ends it whatever happens."""
    with subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_interrupt_ends_the_request_and_the_command(fake: FakeService) -> None:
    """Ctrl-C ends with 130, without a traceback, and the service sees the call cancelled."""
    fake.stall_after = 6
    with start("generate", "hi", "-a", fake.address) as process:
        assert fake.began.wait(60)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert fake.ended.wait(60)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_interrupt_ends_a_benchmark(fake: FakeService) -> None:
    """The same for many requests at once."""
    fake.stall_after = 6
    with start("bench", "-a", fake.address, "--concurrency", "3") as process:
        assert fake.began.wait(60)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_interrupt_ends_a_trace_early(fake: FakeService, tmp_path: Path) -> None:
    """Also while the request that it sends is being answered: what was recorded is kept."""
    fake.trace_responses = service().responses
    fake.trace_stalls = True
    fake.stall_after = 6
    file = tmp_path / "t.json"
    with start("trace", "--prompt", "hi", "-o", str(file), "-a", fake.address) as process:
        assert fake.began.wait(60)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert fake.ended.wait(60)
    kept = load(file)
    assert kept.ended == "it was stopped"
    assert kept.sources


def test_reader_that_goes_away(fake: FakeService) -> None:
    """Writing to a closed pipe ends the command and its request without a traceback."""
    fake.stall_after = 6
    with start("generate", "hi", "-a", fake.address) as process:
        assert fake.began.wait(60)
        assert process.stdout is not None
        process.stdout.close()
        fake.go_on.set()
        assert process.stderr is not None
        errors = process.stderr.read()
        process.wait(60)
    assert process.returncode == 1
    assert "Traceback" not in errors


def test_an_error_takes_the_place_of_a_progress_line(
    fake: FakeService, failure: type[Failure]
) -> None:
    """On a terminal it stands on a line of its own."""
    wrong = grpc.StatusCode.INTERNAL
    fake.failures = [failure(code=wrong, after_tokens=1000), failure(code=wrong)]
    terminal, end = os.openpty()
    command = ("bench", "-a", fake.address, "--warm-up", "0")
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *command],
        stdout=subprocess.DEVNULL,
        stderr=end,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    told = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    os.close(end)
    assert done.returncode == 1
    assert "\r1 of 12 requests" in told
    assert told.endswith("\r\x1b[Kerror: scripted\r\n")


@pytest.mark.parametrize(
    ("streams", "code", "told", "written"),
    [
        (">/dev/full", 1, "error: No space left on device\n", ""),
        (">&-", 0, "", ""),
        ("2>&-", 0, "", "demo: 256 tokens"),
        ("<&-", 0, "", "demo: 256 tokens"),
    ],
)
def test_streams_that_cannot_be_used(
    fake: FakeService, streams: str, code: int, told: str, written: str
) -> None:
    """A full disk is told of; what is closed is silent, and nothing comes out elsewhere in its place."""
    done = subprocess.run(
        [
            "sh",
            "-c",
            f'"$@" {streams}',
            "sh",
            sys.executable,
            "-c",
            MAIN,
            "models",
            "-a",
            fake.address,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (code, told)
    assert done.stdout.startswith(written)


@pytest.mark.parametrize("asked", ["--version", "--help", "status --help"])
def test_help_on_a_full_disk(asked: str) -> None:
    """As with what commands print: a line, and the exit code says that it was not written."""
    command = [sys.executable, "-c", MAIN, *asked.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


def test_a_pipe_that_has_no_such_letters(fake: FakeService) -> None:
    """Text is written with numbers in their place; JSON is the same everywhere."""
    for more in ((), ("--json",)):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "generate", "hi", "-a", fake.address, *more],
            capture_output=True,
            timeout=60,
            check=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "PYTHONIOENCODING": "ascii",
            },
        )
        assert done.stdout.isascii()
        assert (b"f\\u00e4hrt" if more else b"f\\xe4hrt") in done.stdout
