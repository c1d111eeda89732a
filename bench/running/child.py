"""A process that answers lines of JSON with lines of JSON. Every wait has a bound; it ends with us."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

STOP_S = 15.0
"""A process that has not ended so long after its input was closed is killed."""

ROOT = Path(__file__).resolve().parents[2]


class ChildFailed(RuntimeError):
    """The process ended or fell silent; carries the end of what it wrote."""


class Child:
    """A Python module that runs and answers."""

    def __init__(
        self,
        module: str,
        *,
        prefix: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts `python -m MODULE`.

        Args:
            module: What to run.
            prefix: A command before it, such as `ip netns exec NAME`.
            environment: Variables to add.
        """
        self._module = module
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                **(environment or {}),
            },
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process (with a prefix that runs the module as a child of its own: the prefix's)."""
        return self._process.pid

    def ask(self, question: object, *, timeout_s: float = 60.0) -> Any:
        """Sends a line, a string as it is and anything else as JSON, and waits for the answer.

        Raises:
            ChildFailed: It ended, fell silent, or answered with an error.
        """
        self.tell(question)
        return self.answer(timeout_s=timeout_s)

    def tell(self, question: object) -> None:
        """Sends a line."""
        assert self._process.stdin is not None, "a pipe"
        line = question if isinstance(question, str) else json.dumps(question)
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ChildFailed(f"{self._module} has ended: {self._last_words()}") from error

    def answer(self, *, timeout_s: float = 60.0) -> Any:
        """The next line.

        Raises:
            ChildFailed: It ended, fell silent, or answered with an error.
        """
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise ChildFailed(
                f"{self._module} did not answer within {timeout_s:g} s: {self._last_words()}"
            ) from None
        if not line:
            self._lines.put("")
            raise ChildFailed(f"{self._module} has ended: {self._last_words()}")
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise ChildFailed(f"{self._module}: {answer['error']}")
        return answer

    def kill(self) -> None:
        """Ends it at once, as a machine that fails would, and waits until it is gone."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends it, politely first. Idempotent."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(OSError):  # It is gone, with something unread.
                self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(STOP_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None, "a pipe"
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _last_words(self) -> str:
        # Read by position: the process writes at the offset that both share.
        size = os.fstat(self._errors.fileno()).st_size
        text = os.pread(self._errors.fileno(), 2000, max(size - 2000, 0))
        return text.decode(errors="replace").strip() or "it wrote nothing"
