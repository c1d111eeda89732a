"""What a service that was killed leaves, and who removes it."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.service.conftest import save_tables
from tests.service.processes import (
    ServiceProcess,
    ray_folder,
    run,
    serving,
    start,
    still_running,
    until,
    wait_ready,
)

ENDED_S = 60.0
"""Seconds for Ray's processes to notice that their service was killed; three on an idle machine."""

AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
"""Ray's helpers, which give up on its dead central process only after a minute, and hold nothing meanwhile."""


@pytest.fixture
def parent() -> Iterator[Path]:
    """A temporary folder of our own for the services, with a name short enough for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="o", dir="/tmp", ignore_cleanup_errors=True) as made:
        yield Path(made)


def test_next_start_removes_what_a_killed_service_left(tmp_path: Path, parent: Path) -> None:
    """Its folder with the token, and its ready file; the folder of a service that lives stays, and serves on."""
    target, _ = save_tables(tmp_path)
    arguments = ["--target", f"tabular:{target}", "--listen", "127.0.0.1:0"]

    def begin(name: str, *more: str) -> ServiceProcess:
        folder = tmp_path / name
        folder.mkdir()
        return start(folder, [*arguments, *more], TMPDIR=str(parent))

    killed = begin("killed", "--draft", "prompt_lookup")
    family: list[psutil.Process] = []
    try:
        wait_ready(killed)
        family = killed.family()
        left = ray_folder(family)
        others = [process for process in family if process.name() not in AGENTS]
        os.kill(killed.process.pid, signal.SIGKILL)
        killed.process.wait(30)
        until(lambda: not still_running(others), timeout_s=ENDED_S, what="the end of its family")
    finally:
        killed.process.kill()
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    assert (left / "token").exists()
    told = run("status", "--ready-file", str(killed.folder / "ready"))
    assert told.returncode == 3
    assert "is left over" in told.stderr

    first = begin("first")
    with serving(first):
        kept = ray_folder(first.family())
        assert list(parent.glob("outrider-*")) == [kept]
        assert not (killed.folder / "ready").exists()

        second = begin("second")
        with serving(second):
            folders = {kept, ray_folder(second.family())}
            assert set(parent.glob("outrider-*")) == folders
            assert (kept / "token").exists()
            for service in (first, second):
                asked = run("status", "--ready-file", str(service.folder / "ready"))
                assert asked.returncode == 0, asked.stderr
    assert list(parent.glob("outrider-*")) == []
