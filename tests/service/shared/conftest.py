"""Three services for the tests of this folder, which run in the order of their files, one after the other:

- `shipped`, of the shipped models, is used by the first file and then killed;
- `third`, of two coordinators, begins after that, and is changed and ended by the files that follow;
- `service` is there beside both. Each test kills what it likes of it, and the last file ends it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from tests.service.conftest import write_config
from tests.service.processes import (
    COMMAND,
    ServiceProcess,
    environment,
    ray_folder,
    serving,
    start,
    still_running,
    until,
)
from tests.service.shared.others import Heard, Killed

from outrider.actors import demo

ENDED_S = 60.0
"""Seconds for Ray's processes to notice that their service was killed; three on an idle machine."""

AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Ray's helpers, which give up on its dead central process only after a minute, and hold nothing meanwhile."""

TARGET: dict[str, Any] = {
    "model": "law:agree85",
    "device": "emulated:20ms+10us",
    "name": "law",
    "num_slots": 8,
}
"""Of the third service, at first."""

CLUSTER = {"restarts": {"backoff_s": 0.2}, "drain_s": 100.0}
"""Of the third service."""


@pytest.fixture(scope="session")
def parent() -> Iterator[Path]:
    """Where the services have their private folders: one of our own, with a name short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="o", dir="/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, parent: Path) -> Iterator[ServiceProcess]:
    """A service that serves, until the last of these tests ends it."""
    folder = tmp_path_factory.mktemp("service")
    arguments = ["--config", str(write_config(folder)), "--log-level", "info"]
    made = start(folder, arguments, TMPDIR=str(parent))
    with serving(made):
        yield made


def with_another_tokenizer(model: Path, folder: Path) -> Path:
    """A copy of a model that gives two tokens each other's ids."""
    shutil.copytree(model, folder)
    file = folder / "tokenizer.json"
    definition = json.loads(file.read_text())
    vocabulary = definition["model"]["vocab"]
    one, other = sorted(vocabulary, key=vocabulary.__getitem__)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    file.write_text(json.dumps(definition))
    return folder


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory, parent: Path) -> Iterator[ServiceProcess]:
    """A service of the shipped models, and of a drafter with another tokenizer, until it is killed."""
    folder = tmp_path_factory.mktemp("shipped")
    alien = with_another_tokenizer(demo.path("draft-small"), folder / "alien")
    config = {
        "service": {"listen": "127.0.0.1:0"},
        "targets": [{"name": "demo", "model": str(demo.path("target"))}],
        "drafters": [
            {"name": "small", "model": str(demo.path("draft-small"))},
            {"name": "alien", "model": str(alien)},
        ],
    }
    (folder / "service.yaml").write_text(yaml.safe_dump(config))
    made = start(folder, ["--config", str(folder / "service.yaml")], TMPDIR=str(parent))
    with serving(made):
        yield made


@pytest.fixture(scope="session")
def killed(service: ServiceProcess, shipped: ServiceProcess) -> Killed:
    """What is left of the service of shipped models: it was killed while the other one served, and all of its family has ended."""
    family = shipped.family()
    left = ray_folder(family)
    others = [process for process in family if process.name() not in AGENTS]
    try:
        os.kill(shipped.process.pid, signal.SIGKILL)
        shipped.process.wait(30)
        until(lambda: not still_running(others), timeout_s=ENDED_S, what="the end of its family")
    finally:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    return Killed(shipped.folder / "ready", left)


@pytest.fixture(scope="session")
def third(
    killed: Killed, parent: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Heard]:
    """A service of two coordinators, begun when another one had been killed."""
    folder = tmp_path_factory.mktemp("third")
    config = {
        "service": {"coordinators": 2},
        "cluster": CLUSTER,
        "targets": [TARGET],
        "drafters": [{"model": "law:agree85/draft", "device": "emulated:4ms+3us", "name": "draft"}],
    }
    (folder / "service.yaml").write_text(yaml.safe_dump(config))
    arguments = ["-c", "service.yaml", "--listen", "127.0.0.1:0", "--ready-file", "ready"]
    with (folder / "log").open("wb") as log:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
    assert reader.stdin is not None
    try:
        process = subprocess.Popen(
            [*COMMAND, "serve", *arguments, "--admin-file", "admin"],
            cwd=folder,
            env=environment(TMPDIR=str(parent)),
            stdout=subprocess.DEVNULL,
            stderr=reader.stdin,
        )
        reader.stdin.close()
        made = ServiceProcess(process, folder)
        with serving(made):
            yield Heard(made, reader)
    finally:
        reader.kill()
        reader.wait(30)
