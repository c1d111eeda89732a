"""The script that a RayJob runs, with a stand-in for `outrider`: what it starts, waits for, answers and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.chart.rendered import file_of, render, scenario_file

STAND_IN = f"""#!{sys.executable}
import json, os, pathlib, signal, sys, time
home = pathlib.Path(os.environ["STAND_IN"])
with (home / "calls").open("a") as calls:
    print(json.dumps(sys.argv[1:]), file=calls)
def end(*_):
    with (home / "ended").open("a") as ended:
        print(sys.argv[1], file=ended)
    sys.exit(0)
if sys.argv[1] == "serve":
    signal.signal(signal.SIGTERM, end)
    if "FAILS" in os.environ:
        sys.exit(2)
    pathlib.Path(sys.argv[sys.argv.index("--ready-file") + 1]).touch()
    time.sleep(300)
if sys.argv[1] == "batch":
    signal.signal(signal.SIGTERM, end)
    time.sleep(float(os.environ.get("LASTS", "0")))
    sys.exit(int(os.environ.get("EXIT", "0")))
"""

END_S = 60.0


@dataclass
class Job:
    """A script that runs."""

    process: subprocess.Popen[str]
    folder: Path

    def lines(self, name: str) -> list[str]:
        """What the stand-in wrote down."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []


@contextmanager
def running(folder: Path, script: str, **variables: str) -> Iterator[Job]:
    """Runs a rendered script, its folder for the ready file moved below `folder`."""
    (folder / "outrider").write_text(STAND_IN)
    (folder / "outrider").chmod(0o755)
    (folder / "job.sh").write_text(script.replace("/run/outrider", str(folder)))
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "STAND_IN": str(folder),
        **variables,
    }
    process = subprocess.Popen(
        ["bash", str(folder / "job.sh")],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Job(process, folder)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=END_S)


def batch_script(*arguments: str) -> str:
    """The script of the scenario `batch`."""
    return file_of(render("--values", str(scenario_file("batch")), *arguments), "job.sh")


@pytest.mark.parametrize("code", [0, 3])
def test_batch_runs_on_a_ready_service_and_its_code_is_the_jobs(tmp_path: Path, code: int) -> None:
    """The service is ended in any case."""
    with running(tmp_path, batch_script(), EXIT=str(code)) as job:
        assert job.process.wait(END_S) == code
        assert job.lines("calls") == [
            f'["serve", "--config", "/etc/outrider/service.json", "--ready-file", "{tmp_path}/ready.json", "--log-level", "warning"]',
            '["batch", "/data/requests.jsonl", "/data/answers.jsonl"]',
        ]
        assert job.lines("ended") == ["serve"]


def test_service_that_does_not_start_fails_the_job(tmp_path: Path) -> None:
    """No batch is run, and the log says why."""
    with running(tmp_path, batch_script(), FAILS="1") as job:
        assert job.process.wait(END_S) == 1
        assert job.process.stderr is not None
        assert "the service ended before it was ready" in job.process.stderr.read()
        assert len(job.lines("calls")) == 1


def test_job_that_is_stopped_ends_both(tmp_path: Path) -> None:
    """Ray stops a job by SIGTERM."""
    with running(tmp_path, batch_script(), LASTS="300") as job:
        deadline = time.monotonic() + END_S
        while len(job.lines("calls")) < 2:
            assert time.monotonic() < deadline, job.lines("calls")
            time.sleep(0.05)
        job.process.send_signal(signal.SIGTERM)
        assert job.process.wait(END_S) == 143
        assert "serve" in job.lines("ended")


def test_arguments_reach_the_command_as_they_are(tmp_path: Path) -> None:
    """Whatever the shell would make of them."""
    words = '["it\'s", "a b", "$HOME", "`id`", "--x=\\"y\\""]'
    with running(tmp_path, batch_script("--set-json", f"batch.args={words}")) as job:
        assert job.process.wait(END_S) == 0
        assert job.lines("calls")[1].endswith(words[1:])


def test_training_is_the_command_itself(tmp_path: Path) -> None:
    """With the arguments of the values."""
    script = file_of(render("--values", str(scenario_file("train"))), "job.sh")
    with running(tmp_path, script) as job:
        assert job.process.wait(END_S) == 0
        assert job.lines("calls") == [
            '["train", "demo", "--data", "/data/texts", "--out", "/data/models", "--device", "cuda"]'
        ]
