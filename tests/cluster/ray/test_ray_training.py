"""`outrider train METHOD --workers N` on a Ray of its own."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.actors.train.cut_target import cut_target

from outrider.actors.draft.heads.speculator_file import load_speculator
from outrider.actors.train.training_errors import TrainError
from outrider.cluster.ray.ray_training import explained

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
ActorDiedError = pytest.importorskip("ray.exceptions").ActorDiedError

SCRIPT = """
import json, os, sys
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
for name, value in {"HEALTH_CHECK_INTERVAL_S": "0.2", "ENABLE_PREEMPTION_WATCHER": "0", "METRICS_ENABLED": "0"}.items():
    os.environ["RAY_TRAIN_" + name] = value
# Else Ray starts workers that nobody uses: Ray Train's have variables of their own.
os.environ["RAY_prestart_worker_first_driver"] = "0"
import ray
ray.init(
    address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1",
    object_store_memory=100_000_000,
    # Ray Train's helper would ask any Ray of the machine.
    runtime_env={"env_vars": {"RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9"}},
)
from outrider.client.cli import main
codes = []
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        codes.append(end.code)
ray.shutdown()
print(json.dumps(codes))
"""
"""Commands one after the other inside a Ray, as in a Ray job; their exit codes."""

SMALL = (
    *("--text-rows", "16", "--own-rows", "16", "--row-length", "20", "--prompt-length", "6"),
    *("--rows-per-step", "5", "--minutes", "0", "--device", "cpu", "--threads", "1"),
    *("--heads", "2", "--inner", "16", "--text-steps", "4", "--own-steps", "2"),
)


NUM_LAYERS = 2
"""Of the target's twenty: it is read and writes in each worker."""


def train(data: Path, out: Path, *more: str) -> list[str]:
    """Arguments of a training of seconds, of five rows a step, for the target beside the texts."""
    files = ("--data", str(data), "--out", str(out), "--target", str(data.with_name("target")))
    return ["train", "mlp_speculator", *files, *SMALL, *more]


def weights(out: Path) -> dict[str, torch.Tensor]:
    """After the last step, float32."""
    progress = torch.load(out / "progress" / "on-its-own-writing.pt", weights_only=True)
    return progress["model"]  # type: ignore[no-any-return]


def test_two_workers_train_what_one_does(tmp_path: Path) -> None:
    """From the command line: the same net but for the order of sums, a folder that loads, progress that one process goes on with; and what cannot be is
    refused before anything is done."""
    data = tmp_path / "data.txt"
    data.write_text("\n\n".join(f"The number {i} follows {i - 1}." for i in range(2400)))
    cut_target(tmp_path / "target", NUM_LAYERS)
    two, one = tmp_path / "two", tmp_path / "one"
    commands = [
        train(data, tmp_path / "none", "--workers", "3"),
        train(data, tmp_path / "none", "--workers", "6"),
        train(data, tmp_path / "none", "--workers", "2", "--device", "cuda"),
        train(data, two, "--workers", "2", "--json"),
        train(data, two, "--json"),
        train(data, one, "--json"),
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        env={**kept, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *reports, codes = done.stdout.splitlines()
    assert json.loads(codes) == [1, 2, 1, 0, 0, 0], done.stderr
    assert "room for 2" in done.stderr
    assert "the rows of a step" in done.stderr
    assert "room for 0 that need CPU 1, GPU 1 each" in done.stderr
    assert "target reads: 16 of 16 rows" in done.stderr
    assert not (tmp_path / "none").exists()
    with_two, again, with_one = map(json.loads, reports)
    assert again == with_two
    assert load_speculator(two / "mlp_speculator").config.inner == 16
    assert not (two / "progress" / "ray").exists()
    assert with_one["acceptance"].keys() == with_two["acceptance"].keys()
    # The order of sums shows after some decimals. They grow with every step. A worker that learns of its own rows alone is 0.26 away.
    assert far(weights(two), weights(one)) < 0.02


def far(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Distance of two nets."""
    return math.sqrt(sum(float((one[name] - other[name]).square().sum()) for name in one))


def test_what_is_told_of_a_failure() -> None:
    """What a user can mend, as the trainer says it; else the worker that died, and not those that waited for it."""

    class Failed(Exception):
        def __init__(self, **failures: Exception) -> None:
            self.worker_failures = {int(name[1:]): error for name, error in failures.items()}

    waits = RuntimeError("Connection closed by peer")
    wrong = KeyError("x")
    assert explained(Failed(w0=waits, w1=TrainError("no such layer"))) == "no such layer"
    assert "worker 1 has died" in explained(Failed(w0=waits, w1=ActorDiedError()))
    assert explained(Failed(w0=waits)).startswith("a worker has died")
    assert explained(Failed(w0=waits, w1=wrong)).startswith("worker 1 failed: KeyError: 'x'")
    assert explained(RuntimeError("no room")).startswith("Ray Train: no room")
    assert explained(Failed(w0=wrong)).endswith("goes on from here")
