"""Services as jobs on a running Ray cluster that asks for a token: a program that starts one, and `outrider submit`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml
from tests.service.conftest import save_tables
from tests.service.head import Head
from tests.service.processes import COMMAND, END_TIMEOUT_S, START_TIMEOUT_S, until

from outrider.client import Client, SamplingOptions, SpeculationOptions

READY = "; Ctrl-C or SIGTERM ends it"

JOB = """
import sys
from pathlib import Path
from outrider.client import Client, SamplingOptions, SpeculationOptions
from outrider.cluster.config.schema import load_config
from outrider.cluster.start.launch import start_service

with start_service(load_config(Path(sys.argv[1]))) as service:
    with Client(service.address, timeout_s=60) as client:
        sampling = SamplingOptions(max_tokens=20, seed=3, ignore_eos=True)
        outputs = [
            client.generate(tokens=[1, 2, 3], sampling=sampling, speculation=SpeculationOptions(enabled=on))
            for on in (False, True)
        ]
    roles = sorted(actor.role.value for actor in service.actors())
    print("PIDS", *(actor.pid for actor in service.actors()))
print("EQUAL" if [t.id for t in outputs[0].tokens] == [t.id for t in outputs[1].tokens] else "DIFFERENT", len(outputs[0].tokens), roles)
"""
"""A program that starts a service, as a Ray job."""


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
    """By a configuration that lies elsewhere. Jobs that call it are in tests/docs/test_run.py."""
    config = {
        "service": {"listen": "127.0.0.1:0"},
        "targets": [{"model": "law:agree85"}],
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
            pids = [actor.pid for actor in client.status().actors if actor.pid]
        assert texts[0] == texts[1] != ""
        assert len(pids) == 3

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


def test_job_starts_a_service_in_the_cluster_and_leaves_no_actor(
    head: Head, tmp_path: Path
) -> None:
    """It joins with the cluster's token, is placed on a custom resource, serves, and ends what it started."""
    target, draft = save_tables(tmp_path)
    config = {
        "service": {"listen": "127.0.0.1:0"},
        "cluster": {"address": "auto"},
        "targets": [{"model": f"tabular:{target}", "resources": {"target_node": 1}}],
        "drafters": [{"model": f"tabular:{draft}"}],
    }
    (tmp_path / "service.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "job.py").write_text(JOB)
    result = head.submit(sys.executable, str(tmp_path / "job.py"), str(tmp_path / "service.yaml"))

    assert "EQUAL 20 ['coordinator', 'drafter', 'target']" in result.stdout, result.stdout
    assert result.returncode == 0
    line = next(line for line in result.stdout.splitlines() if line.startswith("PIDS "))
    pids = [int(pid) for pid in line.split()[1:]]
    assert len(pids) == 3
    until(
        lambda: not any(psutil.pid_exists(pid) for pid in pids),
        timeout_s=END_TIMEOUT_S,
        what="the end of the job's actors",
    )


def test_wrong_token_is_refused(head: Head) -> None:
    """Who does not know the token submits nothing."""
    stranger = Head(head.dashboard, {**head.variables, "RAY_AUTH_TOKEN": "wrong" * 8})
    result = stranger.submit("outrider", "config", "schema")

    assert result.returncode != 0
    assert "oken" in result.stdout + result.stderr
