"""Changing a real service while requests run: nothing is lost, and every text is what it was."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import yaml
from tests.service.processes import (
    COMMAND,
    END_TIMEOUT_S,
    START_TIMEOUT_S,
    environment,
    run,
    until,
)
from tests.service.shared.conftest import CLUSTER, TARGET
from tests.service.shared.others import Heard

from outrider.client import Client, SamplingOptions

NUM_CLIENTS = 4
APPLY_S = 150.0


def written(folder: Path, name: str, **sections: Any) -> Path:
    """A configuration file."""
    file = folder / name
    file.write_text(yaml.safe_dump(sections))
    return file


def apply(file: Path, admin: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs `outrider apply`."""
    return run("apply", str(file), "--admin-file", str(admin), *options, timeout_s=APPLY_S)


def test_everything_is_exchanged_under_load(third: Heard, tmp_path: Path) -> None:
    """Drafters, the number of targets, and limits: the plan is shown, requests go on, the file is watched."""
    service = third.service
    after: dict[str, Any] = {
        "service": {"max_waiting": 33, "coordinators": 2},
        "cluster": CLUSTER,
        "targets": [{**TARGET, "replicas": 2, "num_cpus": 0.5}],
        "drafters": [{"method": "prompt_lookup", "num_cpus": 0}],
    }
    admin = service.folder / "admin"
    assert admin.stat().st_mode & 0o077 == 0
    wanted = written(tmp_path, "after", **after)
    # The port was chosen at the start, and a running service keeps it.
    refused = apply(wanted, admin)
    assert refused.returncode == 1
    assert "service.listen" in refused.stderr
    after["service"]["listen"] = "127.0.0.1:0"
    wanted = written(tmp_path, "after", **after)
    shown = apply(wanted, admin, "--dry-run")
    assert shown.returncode == 0, shown.stderr
    for line in (
        "replace  target law",
        "add      target law-1",
        "remove   drafter draft",
        "max_waiting",
    ):
        assert line in shown.stderr

    is_over = Event()
    texts: dict[int, set[tuple[int, ...]]] = {}

    def generate(seed: int) -> int:
        rounds = 0
        with Client(service.address, timeout_s=200.0) as client:
            while not is_over.is_set() or rounds < 2:
                options = SamplingOptions(seed=seed, max_tokens=200, ignore_eos=True)
                (output,) = client.generate(tokens=[1, 2, 3], sampling=options).outputs
                texts.setdefault(seed, set()).add(tuple(token.id for token in output.tokens))
                rounds += 1
        return rounds

    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        running = [pool.submit(generate, seed) for seed in range(NUM_CLIENTS)]
        try:
            applied = apply(wanted, admin)
        finally:
            is_over.set()
        rounds = [one.result(200.0) for one in running]
    assert applied.returncode == 0, applied.stderr
    assert min(rounds) >= 2
    assert all(len(found) == 1 for found in texts.values()), "a text has changed"
    names = {"law.2", "law-1", "prompt_lookup", "coordinator-0.2", "coordinator-1.2"}

    def ready() -> set[str]:
        with Client(service.address) as client:
            return {actor.name for actor in client.status().actors if actor.ready}

    # The coordinators that have just come connect to them by and by.
    until(lambda: ready() == names, timeout_s=START_TIMEOUT_S, what="all of them")

    watching = subprocess.Popen(
        [*COMMAND, "apply", str(wanted), "--admin-file", str(admin), "--watch"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        written(tmp_path, "after", **{**after, "drafters": []})

        def has_left() -> bool:
            with Client(service.address) as client:
                return "prompt_lookup" not in {a.name for a in client.status().actors}

        until(has_left, timeout_s=START_TIMEOUT_S, what="the drafter's end")
    finally:
        watching.terminate()
        said, _ = watching.communicate(timeout=END_TIMEOUT_S)
    assert "remove   drafter prompt_lookup" in said
