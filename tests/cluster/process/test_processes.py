"""Only our own processes are found, and they end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from tests.service.processes import until

from outrider.cluster.process import processes

WAIT = "import signal, subprocess, sys, time; {0}; print('on', flush=True); time.sleep(60)"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
SLEEP = "['sleep', '60']"
HEIR = (
    f"heir = lambda *_: ({DEAF}, subprocess.Popen({SLEEP}), sys.exit()); "
    "signal.signal(signal.SIGTERM, heir)"
)
"""Starts another process when it is asked to end, as a raylet does that is still starting. That one hears no requests from the
beginning: what is ignored is inherited."""


def spawn(body: str, *, has_own_session: bool = True) -> subprocess.Popen[bytes]:
    """A process, by default with a session of its own, once it runs `body`."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT.format(body)],
        stdout=subprocess.PIPE,
        start_new_session=has_own_session,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.fixture
def spawned() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test, and those of their sessions."""
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for process in made:
        if process.returncode is None:
            for left in processes.of_session(process.pid):
                left.kill()
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def pids(leader: subprocess.Popen[bytes]) -> set[int]:
    """Of the running processes of a session."""
    return {process.pid for process in processes.of_session(leader.pid) if processes.runs(process)}


def test_a_session_is_found_and_no_other_process(spawned: list[subprocess.Popen[bytes]]) -> None:
    """A child belongs to it, one of the same parent that has no part in it does not."""
    child = f"subprocess.Popen({SLEEP})"
    spawned += [spawn(child), spawn("pass"), spawn("pass", has_own_session=False)]

    found = pids(spawned[0])
    assert len(found) == 2
    assert spawned[0].pid in found
    processes.end(lambda: processes.of_session(spawned[0].pid), patience_s=0.1)
    assert not pids(spawned[0])
    assert spawned[1].poll() is None
    assert spawned[2].poll() is None


def test_what_has_lost_its_parent_is_found(spawned: list[subprocess.Popen[bytes]]) -> None:
    """The agents of a raylet that was killed."""
    spawned.append(spawn("subprocess.run(['sh', '-c', 'sleep 60 &'])"))
    orphan = psutil.Process(next(iter(pids(spawned[0]) - {spawned[0].pid})))

    spawned[0].kill()
    until(lambda: spawned[0].pid not in pids(spawned[0]), timeout_s=30.0, what="the leader to end")
    assert pids(spawned[0]) == {orphan.pid}
    processes.end(lambda: processes.of_session(spawned[0].pid), patience_s=0.2)
    assert not processes.runs(orphan)


def test_a_child_of_another_session_is_found(spawned: list[subprocess.Popen[bytes]]) -> None:
    """The entry point of a job, which Ray starts so."""
    spawned.append(spawn(f"subprocess.Popen({SLEEP}, start_new_session=True)"))

    found = processes.of_session(spawned[0].pid)
    assert len(found) == 2
    processes.end(lambda: found, patience_s=0.1)
    assert not any(processes.runs(process) for process in found)


def test_what_is_started_at_the_end_ends_too(spawned: list[subprocess.Popen[bytes]]) -> None:
    """Whatever was found before: it is looked again until nothing is left."""
    spawned.append(spawn(HEIR))
    leader = spawned[0].pid

    killed = processes.end(lambda: processes.of_session(leader), patience_s=4.0)
    assert len(killed) == 1
    assert leader not in {process.pid for process in killed}
    assert not pids(spawned[0])


def test_process_that_ignores_requests_is_killed(spawned: list[subprocess.Popen[bytes]]) -> None:
    """In bounded time, and it is told of."""
    spawned.append(spawn(DEAF))
    process = psutil.Process(spawned[0].pid)

    assert processes.end(lambda: [process], patience_s=0.2) == frozenset({process})
    assert process.status() == psutil.STATUS_ZOMBIE


def test_process_that_is_gone_is_no_error() -> None:
    """It ended between being found and being ended."""
    popen = subprocess.Popen([sys.executable, "-c", "pass"])
    process = psutil.Process(popen.pid)
    popen.wait()

    assert processes.end(lambda: [process], patience_s=0.1) == frozenset()
    assert processes.of_session(popen.pid) == frozenset()


def test_a_name_is_found_among_those_that_run(spawned: list[subprocess.Popen[bytes]]) -> None:
    """And not once it has ended."""
    spawned.append(spawn("pass"))
    ours = frozenset({psutil.Process(spawned[0].pid)})
    name = psutil.Process(spawned[0].pid).name()
    assert processes.any_named(name, ours)
    assert not processes.any_named("raylet", ours)
    spawned[0].kill()
    spawned[0].wait()
    assert not processes.any_named(name, ours)
