"""Services as jobs on a running Ray cluster that asks for a token: `outrider submit`."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml
from tests.service.head import Head
from tests.service.processes import COMMAND, END_TIMEOUT_S, START_TIMEOUT_S, until

from outrider.client import Client, SamplingOptions, SpeculationOptions

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
        timeout=400,
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
        process.wait(END_TIMEOUT_S)


def test_service_is_submitted_called_left_and_stopped(head: Head, tmp_path: Path) -> None:
    """By a configuration that lies elsewhere. It joins with the cluster's token, and its target is where the cluster has what it needs. Jobs that call it
    are in tests/docs/test_run.py."""
    config = {
        "service": {"listen": "127.0.0.1:0"},
        "targets": [{"model": "law:agree85", "resources": {"target_node": 1}}],
        "drafters": [{"model": "law:agree85/draft"}],
    }
    (tmp_path / "here.yaml").write_text(yaml.safe_dump(config))
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
            actors = client.status().actors
        assert texts[0] == texts[1] != ""
        assert sorted(actor.role for actor in actors) == ["coordinator", "drafter", "target"]
        pids = [actor.pid for actor in actors]
        assert all(map(psutil.pid_exists, pids))

        follower.send_signal(signal.SIGINT)
        assert follower.wait(END_TIMEOUT_S) == 130
    assert "service goes on" in log.read_text()
    assert f"submit --address {head.dashboard} stop service" in log.read_text()

    with following(head, again, "logs", "service", "--follow") as follower:
        until(lambda: READY in again.read_text(), timeout_s=60, what="the log")
        stopped = submit(head, "stop", "service")
        assert (stopped.returncode, stopped.stderr) == (0, "service: STOPPED\n")
        assert follower.wait(60) == 143
    assert "ended\n" in again.read_text()
    until(
        lambda: not any(psutil.pid_exists(pid) for pid in pids),
        timeout_s=END_TIMEOUT_S,
        what="the end of the job's actors",
    )
    taken = submit(head, *submission)
    assert taken.returncode == 2
    assert "there is a job 'service' already" in taken.stderr


def test_exit_code_of_the_command_is_passed_on(head: Head) -> None:
    """Also when the job was not waited for: its id is then all that is printed. A job that does not exist is told from it."""
    # It cannot reach a service, for which `bench` has a code of its own.
    sent = submit(head, "--no-wait", "bench", "-a", "127.0.0.1:1")
    assert sent.returncode == 0, sent.stderr
    followed = submit(head, "logs", sent.stdout.strip(), "--follow")
    unknown = submit(head, "status", "nobody")

    assert followed.returncode == 3
    assert "Connection refused" in followed.stdout
    assert "FAILED, exit code 3" in followed.stderr
    assert (unknown.returncode, "knows of no job 'nobody'" in unknown.stderr) == (2, True)


def test_stranger_is_refused(head: Head) -> None:
    """In one line, and nothing is submitted. A token in a file is enough to see that, at an address without `http://`."""
    strange = ("--submission-id", "strange", "bench")
    wrong = submit(head, *strange, variables={"RAY_AUTH_TOKEN": "wrong" * 8})
    missing = submit(head, *strange, variables={"RAY_AUTH_MODE": "disabled"})
    known = {name: value for name, value in head.variables.items() if "RAY_AUTH" not in name}
    plain = Head(head.dashboard.removeprefix("http://"), known)
    listed = submit(plain, "--token-file", head.variables["RAY_AUTH_TOKEN_PATH"], "list", "--json")

    assert (wrong.returncode, missing.returncode) == (1, 1)
    assert wrong.stderr == f"error: the job server at {head.dashboard} refuses the token\n"
    assert "asks for a token: --token-file" in missing.stderr
    assert len(missing.stderr.splitlines()) == 1
    assert listed.returncode == 0, listed.stderr
    assert "strange" not in [job["id"] for job in json.loads(listed.stdout)["jobs"]]
