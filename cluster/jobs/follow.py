"""A job watched to its end: what it writes, and how it ended.

What it writes comes over a connection that says nothing while the job is silent, so the job itself is asked now and then. A
connection that breaks is opened again, and the log goes on where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from outrider.cluster.jobs.job_server import JobServer
from outrider.cluster.process.command_failed import UNAVAILABLE, CommandFailed, Report
from outrider.cluster.process.signals import Ending
from outrider.cluster.ray.ray_errors import first_line

POLL_S = 0.2
"""How often what has come is written, and a signal is looked for."""

CHECK_S = 5.0
"""How often the job is asked how it is."""

RETRY_S = 1.0
"""Pause before a broken connection is opened again."""

LOST_S = 120.0
"""Without an answer for so long, the job is out of sight."""

LAST_WORDS_S = 10.0
"""How long a job that has ended may take to send the rest of its log."""

STOPPED = 143
"""Exit code for a job that was stopped, as of a process that SIGTERM has ended."""

NOT_STARTED = "JOB_ENTRYPOINT_COMMAND_START_ERROR"
"""Ray's kind of error of a job whose node was found and whose command could not be started there."""


def exit_code(status: str, driver_exit_code: int | None) -> int:
    """The exit code of a job that has ended: its command's own, if that is known.

    Args:
        status: SUCCEEDED, FAILED or STOPPED.
        driver_exit_code: The command's, negative after a signal. Nobody knows it if the job did not come to start.
    """
    if status == "SUCCEEDED":
        return 0
    if status == "STOPPED":
        return STOPPED
    if not driver_exit_code:
        return 1
    return driver_exit_code if driver_exit_code > 0 else 128 - driver_exit_code


def end_line(job: str, details: Any) -> str:
    """How a job has ended, in a line.

    Args:
        job: Its submission id.
        details: Ray's. They name the job's node once its command is about to start.
    """
    code = exit_code(str(details.status), details.driver_exit_code)
    if details.driver_exit_code is not None or details.status != "FAILED":
        return f"{job}: {details.status}, exit code {code}"
    is_lost = details.driver_node_id and details.error_type != NOT_STARTED
    return f"{job} {'was lost' if is_lost else 'did not come to start'}: {details.message}"


class Follower:
    """Follows one job, once."""

    def __init__(
        self,
        server: JobServer,
        job: str,
        *,
        write: Callable[[str], None],
        report: Report,
        ending: Ending,
        stop_on_signal: bool,
    ) -> None:
        """Args:
        server: Where the job runs.
        job: Its submission id.
        write: Takes what the job writes.
        report: Takes lines on how it goes.
        ending: A signal here ends the following.
        stop_on_signal: It stops the job first.
        """
        self._server, self._job = server, job
        self._write, self._report = write, report
        self._ending, self._stop_on_signal = ending, stop_on_signal
        self._arrived: list[str] = []
        self._num_characters = 0
        self._heard_at = time.monotonic()
        self._told = ""

    async def follow(self) -> Any | None:
        """Ray's details of the job once it has ended; None if a signal came first and the job goes on.

        Raises:
            CommandFailed: The job server has been silent for `LOST_S`.
        """
        is_stopping = False
        ended: Any | None = None
        deadline = float("inf")
        check_at = time.monotonic() + CHECK_S
        copying = asyncio.create_task(self._copy())
        try:
            while True:
                await asyncio.wait({copying}, timeout=POLL_S)
                self._flush()
                is_left = self._ending.is_set() and not is_stopping
                if is_left and ended is None:
                    if not self._stop_on_signal:
                        return None
                    is_stopping = True
                    self._report(f"stopping {self._job}")
                    await asyncio.to_thread(self._server.stop_job, self._job)
                now = time.monotonic()
                if ended is not None and (copying.done() or now > deadline or is_left):
                    if not copying.done() or not copying.result():
                        await self._catch_up()
                    return ended
                if not copying.done() and now < check_at:
                    continue
                check_at = now + CHECK_S
                if ended is None and (ended := await self._look()) is not None:
                    deadline = time.monotonic() + LAST_WORDS_S
                elif copying.done():
                    copying = asyncio.create_task(self._copy())
        finally:
            copying.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await copying

    async def _copy(self) -> bool:
        """Takes the log from its beginning, and leaves out what was taken before. False if the connection broke."""
        seen = 0
        try:
            async for text in self._server.tail_job_logs(self._job):
                new = text[max(self._num_characters - seen, 0) :]
                seen += len(text)
                self._num_characters = max(self._num_characters, seen)
                self._arrived.append(new)
        except (OSError, RuntimeError, aiohttp.ClientError):
            await asyncio.sleep(RETRY_S)
            return False
        return True

    async def _catch_up(self) -> None:
        """Takes the rest of the log of a job that has ended, in one piece."""
        text = ""
        try:
            text = await asyncio.to_thread(self._server.get_job_logs, self._job)
        except (OSError, RuntimeError) as error:
            self._report(f"the end of what {self._job} wrote did not come: {first_line(error)}")
        self._flush()  # what has come meanwhile
        self._write(text[self._num_characters :])

    def _flush(self) -> None:
        text = "".join(self._arrived)
        self._arrived.clear()
        if text:
            self._write(text)

    async def _look(self) -> Any | None:
        """The job's details, if it has ended."""
        try:
            details = await asyncio.to_thread(self._server.get_job_info, self._job)
        except OSError as error:
            silence = time.monotonic() - self._heard_at
            if silence > LOST_S:
                raise CommandFailed(
                    f"lost sight of {self._job}, which may go on: {error}", UNAVAILABLE
                ) from error
            return None
        self._heard_at = time.monotonic()
        if details.status.is_terminal():
            return details
        if details.status == "PENDING" and (details.message or "") != self._told:
            self._told = details.message or ""
            self._report(f"{self._job} waits: {self._told}")
        return None
