"""A job watched to its end, with connections that break and signals that come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.job_submission import JobStatus

from outrider.cluster.jobs import follow
from outrider.cluster.jobs.follow import STOPPED, Follower, end_line, exit_code
from outrider.cluster.jobs.job_server import JobServer
from outrider.cluster.process.command_failed import UNAVAILABLE, CommandFailed
from outrider.cluster.process.signals import Ending

LOG = "one\ntwo\nthree\n"


class ScriptedServer:
    """A job that has ended once its log was read to `breaks` times broken off and once whole."""

    def __init__(self, *, breaks: tuple[int, ...] = (), endless: bool = False) -> None:
        self.breaks = list(breaks)
        self.endless = endless
        self.status = JobStatus.RUNNING
        self.stopped: list[str] = []
        self.silent = False
        self.over = asyncio.Event()

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        self.loop = asyncio.get_running_loop()
        until = self.breaks.pop(0) if self.breaks else None
        for start in range(0, len(LOG[:until]), 2):
            yield LOG[:until][start : start + 2]
        if until is not None:
            raise RuntimeError("broken off")
        if self.endless:
            await self.over.wait()
        if not self.endless:
            self.status = JobStatus.SUCCEEDED

    def get_job_info(self, job: str) -> Any:
        if self.silent:
            raise ConnectionError("nobody")
        return SimpleNamespace(status=self.status, message="said", driver_exit_code=0)

    def get_job_logs(self, job: str) -> str:
        return LOG

    def stop_job(self, job: str) -> bool:
        self.stopped.append(job)
        self.status = JobStatus.STOPPED
        self.loop.call_soon_threadsafe(self.over.set)
        return True


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of hundredths of seconds."""
    for name in ("POLL_S", "CHECK_S", "RETRY_S", "LAST_WORDS_S"):
        monkeypatch.setattr(follow, name, 0.02)


async def watched(
    server: ScriptedServer,
    *,
    signal: int | None = None,
    stop: bool = False,
    ending: Ending | None = None,
    told: list[str] | None = None,
) -> tuple[Any, str]:
    """Follows the job; what it wrote, too. What is said of how it goes is put to `told`."""
    written: list[str] = []
    ending = ending or Ending()
    follower = Follower(
        cast(JobServer, server),
        "job",
        write=written.append,
        report=(told if told is not None else []).append,
        ending=ending,
        stop_on_signal=stop,
    )
    if signal is not None:
        ending.note(signal)
    try:
        return await follower.follow(), "".join(written)
    finally:
        ending.close()


async def test_log_is_written_to_its_end() -> None:
    """Then the job is asked how it ended."""
    details, written = await watched(ScriptedServer())

    assert (details.status, written) == (JobStatus.SUCCEEDED, LOG)


async def test_broken_connection_goes_on_where_it_was() -> None:
    """Twice, the second time before the place of the first; nothing is written twice or left out."""
    _, written = await watched(ScriptedServer(breaks=(7, 3)))

    assert written == LOG


async def test_job_that_ends_behind_a_broken_connection() -> None:
    """The rest of its log is fetched in one piece."""
    server = ScriptedServer(breaks=(5,))
    server.status = JobStatus.FAILED
    details, written = await watched(server)

    assert (details.status, written) == (JobStatus.FAILED, LOG)


class Torn(ScriptedServer):
    """A job that has ended, the rest of whose log nobody has any more."""

    def get_job_logs(self, job: str) -> str:
        raise RuntimeError("the node is gone")


async def test_a_log_whose_end_does_not_come_says_so() -> None:
    """Else what is there would look like the whole."""
    server = Torn(breaks=(5,))
    server.status = JobStatus.FAILED
    told: list[str] = []
    _, written = await watched(server, told=told)

    assert written == LOG[:5]
    assert told == ["the end of what job wrote did not come: the node is gone"]


class Late(ScriptedServer):
    """A job that has ended, more of whose log comes while the rest is fetched in one piece."""

    def __init__(self) -> None:
        super().__init__()
        self.status = JobStatus.SUCCEEDED
        self.is_taken = threading.Event()

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        self.loop = asyncio.get_running_loop()
        yield LOG[:6]
        await self.over.wait()
        yield LOG[6:9]
        self.is_taken.set()
        await asyncio.sleep(600)

    def get_job_logs(self, job: str) -> str:
        self.loop.call_soon_threadsafe(self.over.set)
        assert self.is_taken.wait(60)
        return LOG


async def test_what_comes_while_the_rest_is_fetched_is_written() -> None:
    """Once."""
    _, written = await watched(Late())

    assert written == LOG


async def test_signal_leaves_the_job() -> None:
    """What was written before it is shown."""
    server = ScriptedServer(endless=True)
    details, _ = await watched(server, signal=2)

    assert details is None
    assert server.stopped == []


async def test_signal_behind_the_end_of_the_job_leaves_nothing_unwritten() -> None:
    """The job has ended as it was asked about; the rest of its log comes in one piece, and its end is told."""
    server = ScriptedServer(breaks=(5,))
    ending = Ending()

    def asked(job: str) -> Any:
        server.status = JobStatus.SUCCEEDED
        ending.note(2)
        return ScriptedServer.get_job_info(server, job)

    server.get_job_info = asked  # type: ignore[method-assign]
    details, written = await watched(server, ending=ending)

    assert details is not None
    assert (details.status, written) == (JobStatus.SUCCEEDED, LOG)


async def test_signal_stops_the_job_if_wanted() -> None:
    """Once, and the end is waited for."""
    server = ScriptedServer(endless=True)
    details, written = await watched(server, signal=2, stop=True)

    assert (details.status, server.stopped, written) == (JobStatus.STOPPED, ["job"], LOG)


async def test_silent_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job may go on, and that is said."""
    monkeypatch.setattr(follow, "LOST_S", 0.1)
    server = ScriptedServer(endless=True)
    server.silent = True
    with pytest.raises(CommandFailed, match="lost sight of job, which may go on") as caught:
        await watched(server)
    assert caught.value.exit_code == UNAVAILABLE


@pytest.mark.parametrize(
    ("status", "driver", "code"),
    [
        ("SUCCEEDED", 0, 0),
        ("STOPPED", None, STOPPED),
        ("FAILED", 3, 3),
        ("FAILED", -9, 137),
        ("FAILED", None, 1),
    ],
)
def test_exit_codes(status: str, driver: int | None, code: int) -> None:
    """The command's own where it is known; a signal as shells tell it."""
    assert exit_code(status, driver) == code


@pytest.mark.parametrize(
    ("status", "driver", "node", "error", "line"),
    [
        (JobStatus.SUCCEEDED, 0, "n", None, "j: SUCCEEDED, exit code 0"),
        (JobStatus.STOPPED, None, "n", None, "j: STOPPED, exit code 143"),
        (JobStatus.FAILED, 3, "n", "JOB_ENTRYPOINT_COMMAND_ERROR", "j: FAILED, exit code 3"),
        (JobStatus.FAILED, None, None, "X", "j did not come to start: why"),
        (JobStatus.FAILED, None, "n", follow.NOT_STARTED, "j did not come to start: why"),
        (JobStatus.FAILED, None, "n", "JOB_SUPERVISOR_ACTOR_DIED", "j was lost: why"),
    ],
)
def test_the_end_in_words(
    status: JobStatus, driver: int | None, node: str | None, error: str | None, line: str
) -> None:
    """A job whose node is gone had started."""
    details = SimpleNamespace(
        status=status,
        message="why",
        driver_exit_code=driver,
        driver_node_id=node,
        error_type=error,
    )
    assert end_line("j", details) == line
