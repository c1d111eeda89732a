"""A third service beside the first one, begun when a second had been killed: what that left is removed, and what belongs to the first stays.

The tests run in their order, and share the third service. It has two coordinators behind one port, of which any may be lost. In the end
nobody can take its output any more: its reader has gone, as if the disk were full.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml
from tests.service.conftest import save_tables
from tests.service.processes import (
    COMMAND,
    START_TIMEOUT_S,
    ServiceProcess,
    environment,
    ray_folder,
    run,
    serving,
    start,
    still_running,
    until,
    wait_ready,
)

from outrider.client import Client, SamplingOptions, SpeculationOptions, TextChunk

ENDED_S = 60.0
"""Seconds for Ray's processes to notice that their service was killed; three on an idle machine."""

AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Ray's helpers, which give up on its dead central process only after a minute, and hold nothing meanwhile."""

NUM_STREAMS = 6

NUM_TOKENS = 150
"""Of the text that runs when the service is told to end: three seconds of passes."""


@dataclass(frozen=True)
class Killed:
    """What is left of a service."""

    ready: Path
    """Its ready file."""
    folder: Path
    """Its private folder."""


@pytest.fixture(scope="module")
def killed(
    service: ServiceProcess, parent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Killed:
    """A service that was killed while the first one served; all of its family has ended."""
    files = tmp_path_factory.mktemp("killed")
    target, _ = save_tables(files)
    what = ("--target", f"tabular:{target}", "--draft", "prompt_lookup")
    made = start(files, [*what, "--listen", "127.0.0.1:0"], TMPDIR=str(parent))
    family: list[psutil.Process] = []
    try:
        wait_ready(made)
        family = made.family()
        left = ray_folder(family)
        others = [process for process in family if process.name() not in AGENTS]
        os.kill(made.process.pid, signal.SIGKILL)
        made.process.wait(30)
        until(lambda: not still_running(others), timeout_s=ENDED_S, what="the end of its family")
    finally:
        made.process.kill()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    return Killed(files / "ready", left)


@dataclass(frozen=True)
class Heard:
    """A service, and the process that takes its output."""

    service: ServiceProcess
    reader: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def third(
    killed: Killed, parent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Heard]:
    """A service of two coordinators."""
    folder = tmp_path_factory.mktemp("third")
    config = {
        "service": {"listen": "127.0.0.1:0", "coordinators": 2},
        "targets": [{"model": "law:agree85", "device": "emulated:20ms+10us"}],
        "drafters": [{"model": "law:agree85/draft", "device": "emulated:4ms+3us"}],
        "cluster": {"restarts": {"backoff_s": 0.2}, "drain_s": 100.0},
    }
    (folder / "service.yaml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
    try:
        process = subprocess.Popen(
            [*COMMAND, "serve", "-c", "service.yaml", "--ready-file", "ready"],
            cwd=folder,
            env=environment(TMPDIR=str(parent)),
            stdout=subprocess.DEVNULL,
            stderr=reader.stdin,
        )
        assert reader.stdin is not None
        reader.stdin.close()
        made = ServiceProcess(process, folder)
        with serving(made):
            yield Heard(made, reader)
    finally:
        reader.kill()
        reader.wait(30)


def test_killed_service_leaves_its_folder(killed: Killed) -> None:
    """With the token. Its ready file says nothing any more, and whoever asks is told so."""
    assert (killed.folder / "token").exists()
    told = run("status", "--ready-file", str(killed.ready))
    assert told.returncode == 3
    assert "is left over" in told.stderr


def test_next_start_removes_it(
    service: ServiceProcess, killed: Killed, third: Heard, parent: Path
) -> None:
    """And the ready file; the folder of the service that lives stays, and both serve."""
    kept = ray_folder(service.family())
    assert set(parent.glob("outrider-*")) == {kept, ray_folder(third.service.family())}
    assert not killed.ready.exists()
    assert (kept / "token").exists()
    for one in (service, third.service):
        asked = run("status", "--ready-file", str(one.folder / "ready"))
        assert asked.returncode == 0, asked.stderr


def test_streams_go_on_when_coordinators_are_killed(third: Heard) -> None:
    """Each stream is resumed at whichever is left, and every text is that of an undisturbed request; those that died return."""
    coordinators = [a for a in third.service.ready["actors"] if a["role"] == "coordinator"]
    assert len(coordinators) == 2
    addresses = [actor["address"] for actor in coordinators]

    def text(seed: int) -> tuple[int, ...]:
        ordered = addresses[seed % 2 :] + addresses[: seed % 2]
        with Client(ordered, timeout_s=200.0) as client:
            options = SamplingOptions(seed=seed, max_tokens=400, ignore_eos=True)
            (output,) = client.generate(tokens=[1, 2, 3], sampling=options).outputs
            return tuple(token.id for token in output.tokens)

    with ThreadPoolExecutor(NUM_STREAMS) as pool, Client(addresses[0]) as client:
        alone = list(pool.map(text, range(NUM_STREAMS)))
        disturbed = [pool.submit(text, seed) for seed in range(NUM_STREAMS)]
        until(lambda: client.status().running >= 2, timeout_s=60.0, what="running requests")
        os.kill(int(coordinators[1]["pid"]), signal.SIGKILL)
        assert [one.result(200.0) for one in disturbed] == alone
        until(
            lambda: sum(a.ready and a.role == "coordinator" for a in client.status().actors) == 2,
            timeout_s=START_TIMEOUT_S,
            what="the coordinator that was killed",
        )


def test_requests_finish_before_a_service_ends_that_cannot_say_so(
    service: ServiceProcess, third: Heard, parent: Path
) -> None:
    """SIGTERM while one runs: it is drained as ever, so is the exit code, and nothing stays beside the first service's."""
    process = third.service.process
    third.reader.kill()
    third.reader.wait(30)
    with Client(third.service.address, timeout_s=100.0) as client:
        options = SamplingOptions(max_tokens=NUM_TOKENS, ignore_eos=True)
        plainly = SpeculationOptions(enabled=False)
        num_tokens = 0
        for event in client.stream(tokens=[1, 2, 3], sampling=options, speculation=plainly):
            if isinstance(event, TextChunk):
                if not num_tokens:
                    process.send_signal(signal.SIGTERM)
                num_tokens += len(event.tokens)
        assert num_tokens == NUM_TOKENS
        assert process.wait(100.0) == 0
    assert list(parent.glob("outrider-*")) == [ray_folder(service.family())]
