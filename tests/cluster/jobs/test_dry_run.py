"""`outrider submit --dry-run`: the request as it would be sent, and all that is refused before."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray.job_submission import JobStatus
from typer.testing import CliRunner, Result

from outrider.client.cli.app import app
from outrider.cluster.jobs import job_commands, job_server
from outrider.cluster.jobs.ray_token import RayToken

SECRET = "not-to-be-shown"


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cluster that asks for a token; a folder of one's own."""
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", SECRET)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def submit(*arguments: str) -> Result:
    """Runs `outrider submit`."""
    return CliRunner().invoke(app, ["submit", *arguments], prog_name="outrider")


def planned(*arguments: str) -> dict[str, Any]:
    """What would be sent."""
    result = submit("--dry-run", *arguments)
    assert result.exit_code == 0, result.output
    assert SECRET not in result.output
    made: dict[str, Any] = json.loads(result.stdout)
    return made


def test_every_option_arrives_in_the_request(tmp_path: Path) -> None:
    """Under the names of Ray's client."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("text")
    (tmp_path / "needs.txt").write_text("# for the job\nleft-pad==1\n\n")
    (tmp_path / "env.yaml").write_text("env_vars: {A: file, B: file}\nexcludes: [b.txt]\n")
    made = planned(
        *("--address", "http://head:8265", "--submission-id", "mine"),
        *("--working-dir", "work", "--runtime-env", "env.yaml"),
        *("--env", "A=1=2", "--pip", "outrider[serve]", "--pip", "needs.txt"),
        *("--entrypoint-cpus", "0.5", "--entrypoint-gpus", "1", "--entrypoint-memory", "1000"),
        *("--entrypoint-resources", "disk=2", "--label", "zone=a"),
        *("bench", "--address", "10.0.0.1:50051", "--drafter", "it's one", "-n", "8"),
    )

    assert made["address"] == "http://head:8265"
    assert made["request"] == {
        "entrypoint": "exec outrider bench --address 10.0.0.1:50051 --drafter 'it'\"'\"'s one' -n 8",
        "submission_id": "mine",
        "runtime_env": {
            "env_vars": {
                "RAY_AUTH_MODE": "token",
                "RAY_JOB_STOP_WAIT_TIME_S": "30",
                "A": "1=2",
                "B": "file",
            },
            "pip": ["outrider[serve]", "left-pad==1"],
        },
        "metadata": {"outrider": "0.1.0", "outrider_command": "bench"},
        "entrypoint_num_cpus": 0.5,
        "entrypoint_num_gpus": 1.0,
        "entrypoint_memory": 1000,
        "entrypoint_resources": {"disk": 2.0},
        "entrypoint_label_selector": {"zone": "a"},
    }
    assert made["package"] == {
        "folder": str(tmp_path / "work"),
        "files": 1,
        "bytes": 4,
        "carried": [],
    }


def test_job_is_told_of_the_mode_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names differ; the mode is that of the submission."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    first, second = planned("bench")["request"], planned("bench")["request"]

    assert first["runtime_env"]["env_vars"]["RAY_AUTH_MODE"] == "disabled"
    assert re.fullmatch(r"outrider-bench-\d{8}-\d{6}-[0-9a-f]{6}", first["submission_id"])
    assert first["submission_id"] != second["submission_id"]


def test_service_joins_the_cluster_with_its_file_carried_along(tmp_path: Path) -> None:
    """From outside the working directory; everything else that follows the verb is unchanged."""
    (tmp_path / "work").mkdir()
    (tmp_path / "c.yaml").write_text("service: {listen: '0.0.0.0:50051'}")
    made = planned("--working-dir", "work", "serve", "-c", "c.yaml", "--log-level", "info")
    (carried,) = made["package"]["carried"]

    assert made["request"]["entrypoint"] == (
        "exec outrider serve -c outrider-files/service.yaml --log-level info"
    )
    assert carried["name"] == "outrider-files/service.yaml"
    assert yaml.safe_load(carried["content"]) == {
        "service": {"listen": "0.0.0.0:50051"},
        "cluster": {"address": "auto", "auth": "token"},
    }
    assert made["request"]["runtime_env"]["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"] == "45"


def test_what_is_left_out_of_the_folder_is_carried_along(tmp_path: Path) -> None:
    """A file that the command names goes with the job whatever `.gitignore` says; a folder cannot, and is told."""
    for name in ("work/data/a.txt", "work/kept/a.txt", "work/in.jsonl", "work/p.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "work" / ".gitignore").write_text("*.jsonl\n/data\n")
    job = ("--working-dir", "work")
    made = planned(*job, "batch", "in.jsonl", "/shared/out.jsonl")
    entrypoint = "exec outrider batch outrider-files/in.jsonl /shared/out.jsonl"
    assert made["request"]["entrypoint"] == entrypoint
    assert made["package"]["carried"] == [
        {"name": "outrider-files/in.jsonl", "from": str(tmp_path / "work" / "in.jsonl")}
    ]
    made = planned(*job, "bench", "--prompts", "./p.txt")
    assert made["request"]["entrypoint"] == "exec outrider bench --prompts ./p.txt"
    assert made["package"]["carried"] == []
    for data in (".", "kept", "kept/"):
        made = planned(*job, "train", "demo", "--data", data, "--out", "/o")
        assert made["request"]["entrypoint"] == f"exec outrider train demo --data {data} --out /o"
    result = submit("--dry-run", *job, "train", "demo", "--data", "data", "--out", "/o")
    assert result.exit_code == 2, result.output
    assert "data is left out of the copy of work that the job gets: see .gitignore" in " ".join(
        result.stderr.split()
    )


def test_paths_of_the_cluster_are_not_touched() -> None:
    """Nothing is read here, and nothing goes with the job."""
    made = planned("--paths-on-cluster", "serve", "--config", "/shared/c.yaml")

    assert made["request"]["entrypoint"] == "exec outrider serve --config /shared/c.yaml"
    assert made["package"] is None


def test_address_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray reads it, but what the command line names goes before."""
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert planned("bench")["address"] == "10.0.0.1:6379"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://10.0.0.2:8265")
    assert planned("bench")["address"] == "http://10.0.0.2:8265"
    assert planned("--address", "http://h:1", "bench")["address"] == "http://h:1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sreve",), "No such command 'sreve'"),
        (("serve", "--confg", "x"), "No such option: --confg"),
        (("train", "dmo"), "No such command 'dmo'"),
        (("serve", "--config", "no.yaml"), "there is no file no.yaml here"),
        (("bench", "--prompts", "no.txt"), "there is no file no.txt here"),
        (("train", "demo", "--data", "/tmp", "--out", "o"), "o would be written to the job's own"),
        (("train", "demo", "--data", "/tmp", "--out", "/o"), "/tmp is a folder outside"),
        (("train", "decision", "--data", "d", "--draft", "o"), "o would be written to the job's"),
        (("--working-dir", "no", "serve"), "--working-dir no is no folder"),
        (("--working-dir", "s3://b/w.zip", "serve"), "name the configuration"),
        (("--runtime-env", "no.yaml", "bench"), "no.yaml.*cannot be read"),
        (("--submission-id", "a/b", "bench"), "'a/b' cannot name a job"),
        (("--env", "A", "bench"), "--env 'A' is not KEY=VALUE"),
        (("--env", "A=1", "--env", "A=2", "bench"), "--env names 'A' twice"),
        (("--entrypoint-resources", "a=-1", "bench"), "'-1' is no positive number"),
        (("--entrypoint-resources", "GPU=1", "bench"), "Ray's own; write --entrypoint-gpus"),
        (("--label", "zone=a b", "bench"), "--label zone=a b is no label that a node can have"),
        (("--label", "zone=", "bench"), "Ray's form is KEY=h100"),
        (("--entrypoint-cpus", "inf", "bench"), "--entrypoint-cpus inf is more than any node has"),
        (("--entrypoint-gpus", "inf", "bench"), "--entrypoint-gpus inf is more than any node has"),
        (("--entrypoint-memory", "9" * 30, "bench"), "--entrypoint-memory 1e\\+30 is more"),
        (("--pip", "no.txt", "bench"), "--pip no.txt cannot be read"),
        (("--token-file", "no", "bench"), "--token-file no cannot be read"),
    ],
)
def test_refused_before_anything_is_sent(arguments: tuple[str, ...], message: str) -> None:
    """Exit code 2 and one line that says what to fix; there is no address to send anything to."""
    result = submit(*arguments)

    assert result.exit_code == 2, result.output
    assert re.search(message, " ".join(result.stderr.split())), result.stderr


def test_requirements_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """As those that cannot be read."""
    (tmp_path / "needs.txt").write_bytes(b"caf\xe9\n")
    result = submit("--pip", str(tmp_path / "needs.txt"), "bench")

    assert result.exit_code == 2, result.output
    assert "needs.txt cannot be read: is no UTF-8 text" in " ".join(result.stderr.split())


def test_help_of_a_command_is_its_own() -> None:
    """It is shown here, not by a job."""
    result = submit("serve", "--help")

    assert result.exit_code == 0
    assert "--ready-file" in result.stdout


def test_nobody_answers() -> None:
    """Exit code 3, at once."""
    result = submit("--address", "http://127.0.0.1:1", "bench")

    assert result.exit_code == 3
    assert "no answer of a job server at http://127.0.0.1:1" in result.stderr


class Starting:
    """A job server whose head cannot start jobs yet."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.tries = 0

    def get_address(self) -> str:
        """Where it would be."""
        return "http://head:8265"

    def asking(self) -> AbstractContextManager[None]:
        """What a refusal means."""
        return job_server.asking(self.get_address(), RayToken("disabled"))

    def submit_job(self, **request: Any) -> str:
        """Refuses as Ray does, so many times."""
        self.tries += 1
        if self.tries <= self.refusals:
            raise RuntimeError("Request failed with status code 500: No available agent to submit")
        return str(request["submission_id"])


@pytest.mark.parametrize(("patience_s", "code"), [(60.0, 0), (0.0, 1)])
def test_a_cluster_that_has_just_started(
    monkeypatch: pytest.MonkeyPatch, patience_s: float, code: int
) -> None:
    """Is asked again until its head can start jobs, for a bounded time."""
    server = Starting(refusals=3)
    monkeypatch.setattr(job_server, "connect", lambda address, credentials: server)
    monkeypatch.setattr(job_commands, "AGENT_POLL_S", 0.0)
    monkeypatch.setattr(job_commands, "AGENT_S", patience_s)
    result = submit("--address", "http://h:1", "--no-wait", "--submission-id", "mine", "bench")

    assert result.exit_code == code, result.output
    assert (server.tries, result.stdout) == ((4, "mine\n") if code == 0 else (1, ""))


class Listing(Starting):
    """A job server with a job that has not begun."""

    def list_jobs(self) -> list[Any]:
        """It."""
        waiting = SimpleNamespace(
            submission_id="mine",
            status=JobStatus.PENDING,
            start_time=None,
            end_time=None,
            entrypoint="outrider bench",
            driver_exit_code=None,
            message="",
        )
        return [waiting]


def test_a_job_that_has_not_begun_has_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not said to have begun in 1970."""
    monkeypatch.setattr(job_server, "connect", lambda address, credentials: Listing(0))
    result = submit("--address", "http://h:1", "list")

    assert result.exit_code == 0, result.output
    assert "mine" in result.stdout
    assert "pending" in result.stdout
    assert ":" not in result.stdout


@pytest.mark.parametrize("address", ["http://h:99999", "http://:1", "http://h:x", "h:99999", "h"])
def test_an_address_that_is_none(address: str) -> None:
    """Trying again cannot help, so that it is a fault of the command line."""
    result = submit("--address", address, "list")

    assert result.exit_code == 2, result.output
    assert f"{address!r} is no address" in result.stderr


def test_which_cluster() -> None:
    """No address is guessed."""
    result = submit("list")

    assert result.exit_code == 2
    assert "which cluster?" in result.stderr
