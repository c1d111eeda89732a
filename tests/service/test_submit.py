"""`outrider submit` against a Ray cluster that asks for a token."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.service.head import Head
from tests.service.processes import COMMAND, START_TIMEOUT_S, until

from outrider.client import Client, SamplingOptions, SpeculationOptions

pytestmark = pytest.mark.timeout(300)

READY = "; Ctrl-C or SIGTERM ends it"


def submit(
    head: Head, *arguments: str, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `outrider submit` to its end. Only the option names the cluster: Ray would go to RAY_ADDRESS."""
    return subprocess.run(
        [*COMMAND, "submit", "--address", head.dashboard, *arguments],
        env={**head.variables, "RAY_ADDRESS": "127.0.0.1:1", **(variables or {})},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@contextmanager
def following(head: Head, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs it beside the test; ended with it."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*COMMAND, "submit", "--address", head.dashboard, *arguments],
            env=head.variables,
            stdout=file,
            stderr=file,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def state(head: Head, job: str) -> str:
    """How a job is."""
    result = submit(head, "status", job, "--json")
    assert result.returncode == 0, result.stderr
    return str(json.loads(result.stdout)["jobs"][0]["status"])


def test_service_is_submitted_called_left_and_stopped(head: Head, tmp_path: Path) -> None:
    """The shipped models, by a configuration that lies elsewhere; a job beside it calls them and ends with 0."""
    (tmp_path / "here.yaml").write_text("service: {listen: '127.0.0.1:0'}\n")
    log, again = tmp_path / "log", tmp_path / "again"
    submission = ("--submission-id", "service", "serve", "--config", str(tmp_path / "here.yaml"))
    with following(head, log, *submission) as follower:
        until(
            lambda: READY in log.read_text() or follower.poll() is not None,
            timeout_s=START_TIMEOUT_S,
            what="the service",
        )
        assert follower.poll() is None, log.read_text()
        line = next(line for line in log.read_text().splitlines() if line.endswith(READY))
        address = line.removeprefix("serving at ").removesuffix(READY)
        sampling = SamplingOptions(max_tokens=12, seed=3, temperature=0.8, ignore_eos=True)
        with Client(address, timeout_s=60) as client:
            texts = [
                client.generate(
                    "The history of",
                    sampling=sampling,
                    speculation=SpeculationOptions(enabled=speculates),
                ).text
                for speculates in (False, True)
            ]
            pids = [actor.pid for actor in client.status().actors if actor.pid]
        assert texts[0] == texts[1] != ""
        assert len(pids) == 3

        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 130
    assert "service goes on" in log.read_text()
    assert f"submit --address {head.dashboard} stop service" in log.read_text()
    assert state(head, "service") == "RUNNING"

    (tmp_path / "prompts.txt").write_text("The telescope\n")
    measured = ("bench", "-a", address, "--prompts", str(tmp_path / "prompts.txt"), "-n", "4")
    job = submit(head, *measured, "--warm-up", "0", "--json")
    assert job.returncode == 0, job.stderr + job.stdout
    assert '"wall_s"' in job.stdout

    with following(head, again, "logs", "service", "--follow") as follower:
        until(lambda: READY in again.read_text(), timeout_s=60, what="the log")
        assert submit(head, "stop", "service").returncode == 0
        assert follower.wait(60) == 143
    assert "ended\n" in again.read_text()
    assert state(head, "service") == "STOPPED"
    until(
        lambda: not any(psutil.pid_exists(pid) for pid in pids),
        timeout_s=30.0,
        what="the end of the job's actors",
    )
    taken = submit(head, *submission)
    assert taken.returncode == 2
    assert "there is a job 'service' already" in taken.stderr


def test_exit_code_of_the_command_is_passed_on(head: Head) -> None:
    """Here it cannot reach a service, for which it has a code of its own; what it said is shown."""
    result = submit(head, "bench", "-a", "127.0.0.1:1")

    assert result.returncode == 3
    assert "Connection refused" in result.stdout
    assert "FAILED, exit code 3" in result.stderr


def test_job_that_is_not_waited_for(head: Head) -> None:
    """Its id is all that is printed; a job that does not exist is told from one that does."""
    result = submit(head, "--no-wait", "bench", "-a", "127.0.0.1:1")
    job = result.stdout.strip()

    assert result.returncode == 0
    assert job in submit(head, "list").stdout
    assert submit(head, "logs", job, "--follow").returncode == 3
    unknown = submit(head, "status", "nobody")
    assert (unknown.returncode, "knows of no job 'nobody'" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RAY_AUTH_TOKEN": "wrong" * 8}, "refuses the token"),
        ({"RAY_AUTH_MODE": "disabled"}, "asks for a token: --token-file"),
    ],
)
def test_stranger_is_refused(head: Head, variables: dict[str, str], message: str) -> None:
    """In one line, and nothing was submitted."""
    result = submit(head, "--submission-id", "strange", "bench", variables=variables)

    assert result.returncode == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert submit(head, "status", "strange").returncode == 2


def test_token_file_and_cluster_address(head: Head, tmp_path: Path) -> None:
    """The file is enough of a token; a web server is recognised without `http://`."""
    file = Path(head.variables["RAY_AUTH_TOKEN_PATH"])
    result = subprocess.run(
        [
            *(*COMMAND, "submit", "--address", head.dashboard.removeprefix("http://")),
            *("--token-file", str(file), "list", "--json"),
        ],
        env={name: value for name, value in head.variables.items() if "RAY_A" not in name},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "jobs" in json.loads(result.stdout)
