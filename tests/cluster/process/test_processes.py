"""Only our own processes are found, and they end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from outrider.cluster.process import processes

WAIT = "import signal, sys, time; {0}; print('on', flush=True); time.sleep(60)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


def spawn(body: str, marker: str) -> subprocess.Popen[bytes]:
    """A process with `marker` on its command line, once it runs `body`."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT.format(body), marker], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def spawned() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for process in made:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_children_of_marked_processes_are_ours_and_unmarked_ones_are_not(
    spawned: list[subprocess.Popen[bytes]],
) -> None:
    """Ray renames its workers, so that only their parents bear the mark."""
    child = (
        "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    )
    spawned += [spawn(child, "/tmp/outrider-test-mark"), spawn("pass", "/tmp/other")]
    owned = processes.owned_by("/tmp/outrider-test-mark")

    assert {process.pid for process in owned} > {spawned[0].pid}
    assert len(owned) == 2
    assert spawned[1].pid not in {process.pid for process in owned}
    processes.end(owned, patience_s=0.1)
    assert processes.end(owned, patience_s=5.0) == frozenset()


def test_process_that_ignores_requests_is_killed(spawned: list[subprocess.Popen[bytes]]) -> None:
    """In bounded time, and it is told of."""
    spawned.append(spawn(DEAF, "x"))
    process = psutil.Process(spawned[0].pid)

    assert processes.end([process], patience_s=0.2) == frozenset({process})
    assert not process.is_running()


def test_process_that_is_gone_is_no_error() -> None:
    """It ended between being found and being ended."""
    popen = subprocess.Popen([sys.executable, "-c", "pass"])
    process = psutil.Process(popen.pid)
    popen.wait()

    assert processes.end([process], patience_s=0.1) == frozenset()
    assert processes.descendants(process) == frozenset()


def test_a_name_is_found_among_those_that_run(spawned: list[subprocess.Popen[bytes]]) -> None:
    """And not once it has ended."""
    spawned.append(spawn("pass", "marker-of-the-name"))
    ours = frozenset({psutil.Process(spawned[0].pid)})
    name = psutil.Process(spawned[0].pid).name()
    assert processes.any_named(name, ours)
    assert not processes.any_named("raylet", ours)
    spawned[0].kill()
    spawned[0].wait()
    assert not processes.any_named(name, ours)
