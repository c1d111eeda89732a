"""Signals to `outrider demo`: it ends, and everything that it started, with the exit code of the signal."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.service.processes import (
    COMMAND,
    END_TIMEOUT_S,
    START_TIMEOUT_S,
    environment,
    ray_folder,
    until,
)

MARK = "OUTRIDER_TEST_MARK"
"""Environment variable that every process of a demonstration inherits, whoever becomes its parent."""

LAWS = ("--emulate", "20ms,3ms", "--quick")
"""Texts of a law, whose passes are slept through: seconds of texts, and no model that is loaded for nothing."""

INT, TERM = signal.SIGINT, signal.SIGTERM


@dataclass
class Demo:
    """`outrider demo`, running in a session of its own."""

    process: subprocess.Popen[bytes]
    folder: Path
    mark: str
    rays: Path | None = None

    @property
    def said(self) -> str:
        """What it has printed."""
        return (self.folder / "log").read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        """Every living process that bears the mark."""
        found = []
        for process in psutil.process_iter():
            try:
                is_ours = process.environ().get(MARK) == self.mark
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def has_raylet(self) -> bool:
        """Whether Ray is being started."""
        for process in self.family():
            try:
                if process.name() == "raylet":
                    return True
            except psutil.NoSuchProcess:
                continue
        return False

    def is_up(self) -> bool:
        """Whether Ray has started, and is being joined."""
        if not self.rays and self.has_raylet():
            self.rays = ray_folder(self.family()) / "ray"
        return self.rays is not None and (self.rays / "ray_current_cluster").exists()

    def wait(self, moment: str) -> None:
        """Waits for a moment of its life."""
        moments: dict[str, Callable[[], bool]] = {
            "Ray starts": self.has_raylet,
            "Ray is joined": self.is_up,
            "texts come": lambda: "temperature" in self.said,
        }

        def has_come() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"the demonstration ended:\n{self.said}")
            return moments[moment]()

        until(has_come, timeout_s=START_TIMEOUT_S, what=moment)


@pytest.fixture
def demo(tmp_path: Path, moment: str) -> Iterator[Demo]:
    """A demonstration that has just been started, of the shipped models if it is not to come to texts; whatever is left of it is
    killed in the end."""
    mark = uuid.uuid4().hex
    options = ["--draft", "prompt_lookup", "--trace", str(tmp_path / "t.json")]
    options += LAWS if moment == "texts come" else ()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "demo", *options],
            env=environment(**{MARK: mark}),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    made = Demo(process, tmp_path, mark)
    try:
        yield made
    finally:
        for left in made.family():
            with suppress(psutil.NoSuchProcess):
                left.kill()
        process.wait(END_TIMEOUT_S)


@pytest.mark.parametrize(
    ("moment", "numbers", "to_all", "code"),
    [
        pytest.param("texts come", (INT, INT), True, 130, id="ctrl-c-twice"),
        pytest.param("texts come", (TERM,), False, 143, id="sigterm"),
        pytest.param("Ray starts", (TERM, TERM), False, 143, id="start-sigterm"),
        pytest.param("Ray starts", (INT, INT), True, 130, id="start-ctrl-c"),
        pytest.param("Ray is joined", (TERM, TERM), True, 143, id="join-sigterm"),
    ],
)
def test_signal_ends_everything(
    demo: Demo, moment: str, numbers: Sequence[signal.Signals], to_all: bool, code: int
) -> None:
    """A terminal signals the whole process group, `kill` one process, some supervisors every process of a service; and who is
    impatient, again."""
    demo.wait(moment)
    folder = ray_folder(demo.family())
    for number in numbers:
        (os.killpg if to_all else os.kill)(demo.process.pid, number)

    assert demo.process.wait(END_TIMEOUT_S) == code, demo.said
    assert "Traceback" not in demo.said
    assert "error:" not in demo.said
    until(lambda: not demo.family(), timeout_s=END_TIMEOUT_S, what="the end of every process")
    assert not folder.exists()
    assert not (demo.folder / "t.json").exists()
