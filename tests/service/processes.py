"""Starting a service as a user does, as a process of its own, and seeing that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-c", "from outrider.client.cli import main; main()")
START_TIMEOUT_S = 300.0
"""Seconds for a start: six on an idle machine, many times that on a busy one."""

END_TIMEOUT_S = 60.0
"""Seconds for an end: two on an idle machine."""


def environment(**changes: str) -> dict[str, str]:
    """Ours without what it says of Ray, and with the source tree importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {**kept, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **changes}


def run(*arguments: str, timeout_s: float = 100.0) -> subprocess.CompletedProcess[str]:
    """Runs `outrider` with these arguments to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def until(
    condition: Callable[[], bool], *, timeout_s: float, what: str, poll_s: float = 0.05
) -> None:
    """Waits until something is so, and looks every `poll_s` seconds.

    Raises:
        TimeoutError: It is not so within the time; says what was waited for.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(poll_s)


@dataclass
class ServiceProcess:
    """`outrider serve`, running."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def ready(self) -> dict[str, Any]:
        """The ready file."""
        content: dict[str, Any] = json.loads((self.folder / "ready").read_text())
        return content

    @property
    def address(self) -> str:
        """Where clients go."""
        return str(self.ready["address"])

    @property
    def log(self) -> str:
        """What it has said."""
        return (self.folder / "log").read_text(errors="replace")

    def pid_of(self, name: str) -> int:
        """The process of an actor at the start of the service."""
        return int(next(a["pid"] for a in self.ready["actors"] if a["name"] == name))

    def family(self) -> list[psutil.Process]:
        """It and all its descendants."""
        own = psutil.Process(self.process.pid)
        return [own, *own.children(recursive=True)]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends a signal and waits for the end. Returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(END_TIMEOUT_S)


def start(folder: Path, arguments: Sequence[str], **variables: str) -> ServiceProcess:
    """Starts `outrider serve` with its files in `folder` and these in its environment; does not wait."""
    log = (folder / "log").open("wb")
    with log:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--ready-file", str(folder / "ready"), *arguments],
            env=environment(**variables),
            stdout=log,
            stderr=log,
        )
    return ServiceProcess(process, folder)


def wait_ready(service: ServiceProcess) -> None:
    """Waits until the service serves.

    Raises:
        RuntimeError: It ended instead; with what it said.
    """

    def is_ready() -> bool:
        if service.process.poll() is not None:
            raise RuntimeError(f"the service ended:\n{service.log}")
        return (service.folder / "ready").exists()

    until(is_ready, timeout_s=START_TIMEOUT_S, what="the service's ready file")


@contextmanager
def serving(service: ServiceProcess) -> Iterator[None]:
    """Waits until it serves; ends it, with all that it started, by force if need be."""
    family: list[psutil.Process] = []
    try:
        wait_ready(service)
        family = service.family()
        yield
    finally:
        if service.process.poll() is None:
            service.process.terminate()
            service.process.wait(END_TIMEOUT_S)
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def has_torch(pid: int) -> bool:
    """Whether a process has loaded PyTorch."""
    return any("libtorch" in region.path for region in psutil.Process(pid).memory_maps())


def still_running(processes: Sequence[psutil.Process]) -> list[str]:
    """Those that have not ended; a zombie has."""
    left = []
    for process in processes:
        try:
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                left.append(" ".join(process.cmdline()) or process.name())
        except psutil.NoSuchProcess:
            continue
    return left


def ray_folder(processes: Sequence[psutil.Process]) -> Path:
    """The private folder of the Ray among these processes."""
    for process in processes:
        try:
            arguments = process.cmdline()
        except psutil.NoSuchProcess:
            continue
        for argument in arguments:
            if "/outrider-" in argument and "/session_" in argument:
                before = argument.partition("/ray/session_")[0]
                return Path(before[before.index("/") :])
    raise LookupError("no Ray among these processes")
