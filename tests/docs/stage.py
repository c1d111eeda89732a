"""Where blocks of the documentation run: a folder, a port, and programs for what is not here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.docs import programs
from tests.docs.examples import ROOT, Example
from tests.service.processes import END_TIMEOUT_S, environment, until

BLOCK_S = 300.0
"""For one block: seconds on an idle machine."""

CURL = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[-1], timeout=20).read().decode())"


@dataclass
class Stage:
    """A folder that looks like the repository's root to those who read its documentation."""

    folder: Path
    port: int
    variables: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    """What is written in the documentation, and what stands for it here."""

    @property
    def traces(self) -> Path:
        """What the programs leave."""
        return self.folder / ".stage"

    def build(self) -> None:
        """Makes the folder and the programs."""
        programs_at = self.folder / ".bin"
        for each in (programs_at, self.traces):
            each.mkdir(parents=True)
        for entry in ROOT.iterdir():
            if not entry.name.startswith("."):
                (self.folder / entry.name).symlink_to(entry)
        lines = {
            name: f'exec {sys.executable} -m tests.docs.programs {name} "$@"'
            for name in programs.PROGRAMS
        }
        lines["python"] = f'exec {sys.executable} "$@"'
        if shutil.which("curl") is None:
            lines["curl"] = f"exec {sys.executable} -c '{CURL}' \"$@\""
        for name, line in lines.items():
            (programs_at / name).write_text(f"#!/bin/bash\n{line}\n")
            (programs_at / name).chmod(0o755)
        self.variables = {
            "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
            "PATH": f"{programs_at}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "STAGE": str(self.traces),
            "PORT": str(self.port),
            "OUTRIDER_ADDRESS": f"127.0.0.1:{self.port}",
            "COLUMNS": "200",
            **self.variables,
        }

    def here(self, text: str) -> str:
        """The text with what stands for its words."""
        pattern = "|".join(re.escape(each) for each in sorted(self.words, key=len, reverse=True))
        return re.sub(pattern, lambda found: self.words[found[0]], text) if pattern else text

    def run(self, example: Example, *, typed: str = "") -> str:
        """Runs a block.

        Args:
            example: In Python, or for the shell.
            typed: What is typed meanwhile.

        Returns:
            What it said.

        Raises:
            AssertionError: A command failed.
        """
        program = {"python": [sys.executable, "-c"]}.get(
            example.language, ["bash", "-euo", "pipefail", "-c"]
        )
        done = subprocess.run(
            [*program, self.here(example.text)],
            cwd=self.folder,
            env=environment(**self.variables),
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BLOCK_S,
            check=False,
        )
        assert done.returncode == 0, (
            f"{example.name}: {done.returncode}\n{done.stdout}{self.logs()}"
        )
        return done.stdout

    def logs(self) -> str:
        """What runs beside has said."""
        return "".join(
            f"\n{file.name}:\n{file.read_text(errors='replace')}"
            for file in sorted(self.traces.glob("*.log"))
        )

    def end(self) -> dict[str, int]:
        """Ends what runs beside, nodes of Ray at once; the exit codes by name."""
        files = sorted(self.traces.glob("*.pid"))
        family: list[psutil.Process] = []
        for file in files:
            if file.with_suffix(".code").exists():
                continue
            with suppress(psutil.NoSuchProcess):  # it has ended just now
                process = psutil.Process(int(file.read_text()))
                members = [process, *process.children(recursive=True)]
                family += members
                if file.stem.startswith("ray"):
                    _kill(members)
                else:
                    process.terminate()
        codes = {}
        try:
            for file in files:
                code = file.with_suffix(".code")
                until(code.exists, timeout_s=END_TIMEOUT_S, what=f"the end of {file.stem}")
                codes[file.stem] = int(code.read_text())
        finally:
            _kill(family)
        return codes


@contextmanager
def staged(folder: Path, port: int, variables: Mapping[str, str]) -> Iterator[Stage]:
    """A stage. What it started has ended afterwards, services with 0."""
    stage = Stage(folder, port, dict(variables))
    stage.build()
    try:
        yield stage
    finally:
        codes = stage.end()
    for name, code in codes.items():
        assert code == 0 or not name.startswith("serve"), f"{name} ended with {code}{stage.logs()}"


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
