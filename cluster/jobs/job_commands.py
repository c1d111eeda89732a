"""What `outrider submit` does. No argument parsing: that is the client's. Results are returned, progress is reported.

Every function raises `CommandFailed` with an exit code for whatever a user can fix.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.cluster.jobs.arguments import Parse
from outrider.cluster.jobs.job_options import JobOptions
from outrider.cluster.jobs.job_request import Submission, build, checked_id
from outrider.cluster.jobs.ray_token import RayToken, find_credentials
from outrider.cluster.process.command_failed import DEADLINE, USAGE, CommandFailed
from outrider.cluster.process.signals import ending_by_signal

if TYPE_CHECKING:
    from outrider.cluster.jobs.job_server import JobServer

STOP_S = 120.0
"""How long `stop` waits for the end. A service that drains for longer goes on ending."""

STOP_POLL_S = 0.5
"""How often it looks."""

AGENT_S = 60.0
"""How long a cluster that has just started may take until its head can start jobs. Ray itself waits a few seconds, then refuses."""

AGENT_POLL_S = 1.0
"""Between two tries."""

NO_AGENT = "No available agent"
"""How Ray refuses then."""

__all__ = ["JobCluster", "JobOptions", "job_logs", "jobs", "plan", "stop", "submit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCluster:
    """Which cluster, as the command line says it; the environment says the rest."""

    address: str | None = None
    token_file: Path | None = None

    def credentials(self) -> RayToken:
        """Mode and token; see `find_credentials`."""
        return find_credentials(self.token_file, os.environ)

    @property
    def option(self) -> str:
        """How to name the same cluster again, for hints."""
        named = f" --address {self.address}" if self.address else ""
        return named + (f" --token-file {self.token_file}" if self.token_file else "")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def plan(
    cluster: JobCluster, verb: str, arguments: Sequence[str], options: JobOptions, parse: Parse
) -> dict[str, Any]:
    """What `submit` would send, in plain values. Sends nothing and asks nobody; holds no token.

    Raises:
        CommandFailed: The job is not allowed.
    """
    # Ray takes seconds to import, which a mistyped argument should not cost; the client of a cluster is not needed here.
    made = build(verb, arguments, options, mode=cluster.credentials().mode, parse=parse)
    from outrider.cluster.jobs.job_server import named_address

    return {
        "address": named_address(cluster.address, os.environ),
        "request": made.request.as_dict(),
        "package": made.package.as_dict() if made.package is not None else None,
    }


def submit(
    cluster: JobCluster,
    verb: str,
    arguments: Sequence[str],
    options: JobOptions,
    parse: Parse,
    *,
    wait: bool = True,
    stop_on_signal: bool = False,
) -> int:
    """Submits `outrider VERB ARGUMENTS` and follows it to its end. Returns the exit code.

    Args:
        cluster: Where.
        verb: `serve`, `batch`, `train` or `bench`.
        arguments: What follows it.
        options: Everything else about the job.
        parse: Reads the arguments as the command will; raises for what it would refuse.
        wait: False writes the submission id and returns.
        stop_on_signal: SIGINT and SIGTERM here stop the job; else they leave it.

    Raises:
        CommandFailed: The job is not allowed, or the cluster does not answer or refuses it.
    """
    credentials = cluster.credentials()
    made = build(verb, arguments, options, mode=credentials.mode, parse=parse)
    server = _connect(cluster, credentials)
    job = made.request.submission_id
    try:
        _send(server, made)
    except KeyboardInterrupt:
        _say(
            f"interrupted while {job} was sent; `outrider submit{cluster.option} status {job}` knows"
        )
        raise
    if not wait:
        _write(f"{job}\n")
        return 0
    _say(f"{job} is submitted to {server.get_address()}")
    return _follow(server, cluster, job, stop_on_signal=stop_on_signal)


def job_logs(
    cluster: JobCluster,
    job: str,
    *,
    follow: bool = False,
    stop_on_signal: bool = False,
) -> int:
    """Writes what a job has written so far; with `follow` to its end. Returns the exit code, the job's if followed.

    Raises:
        CommandFailed: There is no such job, or the cluster does not answer.
    """
    server = _connect(cluster, cluster.credentials())
    _details(server, job)
    if follow:
        return _follow(server, cluster, job, stop_on_signal=stop_on_signal)
    with server.asking():
        _write(server.get_job_logs(job))
    return 0


def jobs(cluster: JobCluster, job: str | None, *, ended: bool) -> tuple[dict[str, Any], ...]:
    """Submitted jobs, the newest last, in plain values: id, status, times in ms since 1970, command, message, exit code.

    Args:
        cluster: Where.
        job: Only this one.
        ended: Also those that have ended; a job that is named always counts.

    Raises:
        CommandFailed: There is no such job, or the cluster does not answer.
    """
    server = _connect(cluster, cluster.credentials())
    if job is not None:
        return (_as_dict(_details(server, job)),)
    with server.asking():
        found = [each for each in server.list_jobs() if each.submission_id]
    found.sort(key=lambda each: each.start_time or 0)
    return tuple(_as_dict(each) for each in found if ended or not each.status.is_terminal())


def stop(cluster: JobCluster, job: str, *, wait: bool = True) -> None:
    """Stops a job, and waits until it has ended. One that has ended already is as it should be.

    Raises:
        CommandFailed: There is no such job, it goes on for more than `STOP_S`, or the cluster does not answer.
    """
    server = _connect(cluster, cluster.credentials())
    details = _details(server, job)
    if details.status.is_terminal():
        _say(f"{job} has ended already: {details.status}")
        return
    with server.asking():
        server.stop_job(job)
    if not wait:
        return
    deadline = time.monotonic() + STOP_S
    while not (details := _details(server, job)).status.is_terminal():
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"{job} was told to end and has not within {STOP_S:g} s; it may still be draining",
                DEADLINE,
            )
        time.sleep(STOP_POLL_S)
    _say(f"{job}: {details.status}")


def _connect(cluster: JobCluster, credentials: RayToken) -> JobServer:
    from outrider.cluster.jobs.job_server import connect, named_address

    return connect(named_address(cluster.address, os.environ), credentials)


def _send(server: JobServer, made: Submission) -> None:
    """Sends the archive, then the request."""
    request = made.request.as_dict()
    with tempfile.TemporaryDirectory(prefix="outrider-job-") as folder:
        if made.package is not None:
            archive = Path(folder) / "job.zip"
            made.package.write(archive)
            request["runtime_env"] = {**request["runtime_env"], "working_dir": str(archive)}
        deadline = time.monotonic() + AGENT_S
        try:
            while True:
                with server.asking():
                    try:
                        server.submit_job(**request)
                        return
                    except RuntimeError as error:
                        if NO_AGENT not in str(error) or time.monotonic() >= deadline:
                            raise
                time.sleep(AGENT_POLL_S)
        except CommandFailed as error:
            if "already exists" in str(error.__cause__):
                raise CommandFailed(
                    f"there is a job {request['submission_id']!r} already; take another --submission-id",
                    USAGE,
                ) from error
            raise
        except (TypeError, ValueError) as error:
            raise CommandFailed(f"Ray refuses the request: {error}", USAGE) from error


def _details(server: JobServer, job: str) -> Any:
    """What Ray knows of a job."""
    checked_id(job)
    try:
        with server.asking():
            return server.get_job_info(job)
    except CommandFailed as error:
        if "status code 404" in str(error.__cause__):
            raise CommandFailed(f"{server.get_address()} knows of no job {job!r}", USAGE) from error
        raise


def _follow(server: JobServer, cluster: JobCluster, job: str, *, stop_on_signal: bool) -> int:
    from outrider.cluster.jobs.follow import Follower, end_line, exit_code

    with ending_by_signal() as ending, server.asking():
        follower = Follower(
            server,
            job,
            write=_write,
            report=_say,
            ending=ending,
            stop_on_signal=stop_on_signal,
        )
        details = asyncio.run(follower.follow())
        if details is None:
            _say(
                f"{job} goes on; `outrider submit{cluster.option} logs {job} --follow` follows it again, "
                f"`outrider submit{cluster.option} stop {job}` stops it"
            )
            return ending.exit_code
    _say(end_line(job, details))
    code = exit_code(str(details.status), details.driver_exit_code)
    return ending.exit_code if ending.is_set() else code


def _as_dict(details: Any) -> dict[str, Any]:
    return {
        "id": details.submission_id,
        "status": str(details.status),
        "started_ms": details.start_time,
        "ended_ms": details.end_time,
        "command": details.entrypoint,
        "exit_code": details.driver_exit_code,
        "message": details.message,
    }
