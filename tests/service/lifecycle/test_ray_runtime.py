"""Ray's life inside one process: three times in a row, with different keys, and nothing left of any; and what it shows of actors' lines."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.service.processes import environment

THRICE = """
import contextlib, os, pathlib
import psutil
from outrider.cluster.config.schema import parse_config
from outrider.cluster.ray.ray_runtime import RayRuntime

def runs(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

def show_lines():
    from ray._private.worker import print_to_stdstream

    variable = ray.remote(lambda name: os.environ.get(name))
    print(ray.get(variable.remote("GRPC_VERBOSITY"), timeout=60))

    for number in (1, 2, 3):
        line = '{"request_id": "r%d", "event": "request accepted", "actor": "coordinator-%d"}' % (number, number)
        source = {"ip": "127.0.0.1", "pid": number, "is_err": True, "actor_name": "CoordinatorActor"}
        print_to_stdstream({**source, "job": "1", "lines": [line]}, ignore_prefix=True)

before = dict(os.environ)
# Ray starts as many workers ahead as twice the actors want processors.
small = {"targets": [{"model": "law:agree70"}], "drafters": []}
for auth, show_logs in (("token", False), ("disabled", False), ("token", True)):
    config = parse_config({"cluster": {"auth": auth}, **small}, source="test")
    runtime = RayRuntime(config, show_logs=show_logs)
    runtime.start()
    with contextlib.ExitStack() as ending:
        ending.callback(runtime.stop)
        import ray
        folder = pathlib.Path(os.environ["RAY_AUTH_TOKEN_PATH"]).parent
        assert os.environ["RAY_AUTH_MODE"] == auth
        assert "RAY_AUTH_TOKEN" not in os.environ
        assert ray.get(ray.remote(lambda: 6 * 7).remote(), timeout=60) == 42
        if show_logs:
            show_lines()
        family = psutil.Process().children(recursive=True)
        assert "raylet" in {process.name() for process in family}
    assert not folder.exists()
    assert not psutil.Process().children(recursive=True)
    # A worker whose parent is gone may be a zombie until it is reaped.
    assert not any(map(runs, family))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_USAGE_STATS_ENABLED", "RAY_DEDUP_LOGS"):
        assert os.environ.get(name) == before.get(name), name
print("CLEAN")
"""


@pytest.fixture(scope="module")
def result() -> subprocess.CompletedProcess[str]:
    """The process, which has ended."""
    return subprocess.run(
        [sys.executable, "-c", THRICE],
        env=environment(RAY_AUTH_TOKEN="someone else's"),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_ray_starts_again_with_another_key_and_leaves_nothing(
    result: subprocess.CompletedProcess[str],
) -> None:
    """Ray keeps mode and token for the life of a process, unless it is told to forget them. Ours are put back."""
    assert result.stdout.strip().endswith("CLEAN"), result.stderr


def test_lines_that_differ_in_numbers_alone_are_all_shown(
    result: subprocess.CompletedProcess[str],
) -> None:
    """Several actors say the same of several requests, each in one JSON object. Ray makes one line of such, and adds how often."""
    lines = [line for line in result.stderr.splitlines() if "request accepted" in line]
    assert [json.loads(line)["request_id"] for line in lines] == ["r1", "r2", "r3"]
    said = result.stdout.split()
    assert said == ["ERROR", "CLEAN"], "else gRPC adds lines of its own, which are no JSON"
