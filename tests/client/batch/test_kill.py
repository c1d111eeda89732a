"""A batch that is killed at any moment, and started again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.batch.lines import chat, completion, read, write

if TYPE_CHECKING:
    from tests.client.conftest import FakeService

COMMAND = (sys.executable, "-c", "from outrider.client.cli import main; main()", "batch")
NUM_RECORDS = 240


@contextlib.contextmanager
def start(source: Path, out: Path, fake: FakeService) -> Iterator[subprocess.Popen[str]]:
    """Starts the command as a process of its own, which is gone afterwards."""
    with subprocess.Popen(
        [*COMMAND, str(source), str(out), "-a", fake.address, "--concurrency", "6"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def num_lines(file: Path) -> int:
    """Whole lines so far."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def wait_for_lines(file: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Waits until the output holds so many."""
    deadline_s = time.monotonic() + 60
    while num_lines(file) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s, f"{num_lines(file)} of {count} lines"
        time.sleep(0.001)


def told(line: dict[str, Any]) -> tuple[object, ...]:
    """What an answer says, without what differs from run to run."""
    body = line["response"]["body"]
    return line["id"], body["choices"], body["usage"], body["outrider"]["seed"]


def test_each_record_exactly_once_after_kills(fake: FakeService, tmp_path: Path) -> None:
    """Killed six times while it was writing: every record is there once, with the text of a run that nobody killed.

    After each start the service answers forty requests and lets the others wait, so that the command cannot end before
    it is killed; the kill comes somewhere within those forty.
    """
    records = [
        (chat if number % 3 == 0 else completion)(f"r{number}") for number in range(NUM_RECORDS)
    ]
    source, out = write(tmp_path / "in.jsonl", *records), tmp_path / "out.jsonl"
    moments = random.Random(7)
    for _ in range(5):
        fake.stall_from = len(fake.requests) + 40
        wanted = num_lines(out) + moments.randint(1, 30)
        with start(source, out, fake) as process:
            wait_for_lines(out, wanted, process)
            process.kill()
    fake.stall_from = None
    with start(source, out, fake) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert f"of {NUM_RECORDS} records" in output
    assert out.read_bytes().endswith(b"\n")
    lines = read(out)
    assert sorted(line["custom_id"] for line in lines) == sorted(
        f"r{number}" for number in range(NUM_RECORDS)
    )
    with start(source, tmp_path / "other.jsonl", fake) as process:
        assert process.wait(60) == 0
    other = {line["custom_id"]: told(line) for line in read(tmp_path / "other.jsonl")}
    assert {line["custom_id"]: told(line) for line in lines} == other


def test_two_commands_on_one_output(fake: FakeService, tmp_path: Path) -> None:
    """The second ends with 1 and says why; the first goes on."""
    source = write(tmp_path / "in.jsonl", *(completion(f"r{number}") for number in range(20)))
    out = tmp_path / "out.jsonl"
    fake.stall_from = 5
    with start(source, out, fake) as first:
        wait_for_lines(out, 3, first)
        with start(source, out, fake) as second:
            _, errors = second.communicate(timeout=60)
        assert second.returncode == 1
        assert "another run" in errors
        fake.go_on.set()
        assert first.wait(60) == 0
    assert len(read(out)) == 20


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_signals(fake: FakeService, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """End the run as they end any command; what was answered stays and the next run goes on."""
    source = write(tmp_path / "in.jsonl", *(completion(f"r{number}") for number in range(20)))
    out = tmp_path / "out.jsonl"
    fake.stall_from = 5
    with start(source, out, fake) as process:
        wait_for_lines(out, 5, process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert num_lines(out) == 5
    fake.stall_from = None
    with start(source, out, fake) as process:
        assert process.wait(60) == 0
    assert len({line["custom_id"] for line in read(out)}) == len(read(out)) == 20
