"""The output on this machine: one file, written record by record, that survives a kill at any moment.

A line counts once its newline is there. A write that a kill cut short leaves a last line without one; the next run
removes it and runs its record again. The lock is on the file itself and ends with the process, however that ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from outrider.client.batch.answer import LINE_BEGINS, Answer, read
from outrider.client.connection.errors import AlreadyRunning, InvalidRequest, OutriderError


class AnswersFile(Protocol):
    """Where answers go. `answers` and `begin` come first, once; `finish` comes last, if all is done."""

    sync_every_s: float
    """Seconds between two calls of `sync`."""

    def answers(self) -> Iterator[Answer]:
        """What earlier runs have left."""

    def begin(self) -> None:
        """Gets ready to take more."""

    def append(self, line: bytes) -> None:
        """Takes one answer."""

    def sync(self) -> None:
        """Makes sure that what was taken so far survives also the end of the machine. For a thread of its own."""

    def finish(self) -> None:
        """Leaves the whole output at its place."""

    def close(self) -> None:
        """Lets go. Safe to call at any time; what was not synchronised may be lost."""


class LocalOutput:
    """An output file on this machine. Nothing is changed before `begin`."""

    sync_every_s = 1.0

    def __init__(self, path: Path) -> None:
        """Raises:
        InvalidRequest: The file cannot be written, or not be locked.
        AlreadyRunning: Another run is writing it.
        """
        import fcntl  # POSIX only; the other commands run where there is none

        self._path = path
        self._end = 0
        self._is_dirty = False
        self._lock = threading.Lock()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise AlreadyRunning(f"{path} is being written by another run") from None
        except OSError as error:  # some network file systems have no locks
            os.close(self._fd)
            raise InvalidRequest(f"{path} cannot be locked: {error.strerror}") from None

    def answers(self) -> Iterator[Answer]:
        """What the file holds, up to a last line that was cut short.

        Raises:
            InvalidRequest: The file holds something else.
        """
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(0)
            self._end = 0
            for raw, answer in read_answers(str(self._path), file):
                self._end += len(raw)
                yield answer

    def begin(self) -> None:
        """Removes a last line that was cut short.

        Raises:
            OutriderError: The file cannot be changed.
        """
        with self._writing():
            os.ftruncate(self._fd, self._end)
        self._is_dirty = True
        self.sync()
        with self._writing():
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # so that the file's name survives, too
            finally:
                os.close(folder)

    def append(self, line: bytes) -> None:
        """Writes one line, or nothing of it: another may come after one that failed.

        Raises:
            OutriderError: The file did not take it.
        """
        rest = memoryview(line)
        self._is_dirty = True
        with self._writing():
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError:
                written = len(line) - len(rest)
                if written:
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise

    def sync(self) -> None:
        """Writes through to the disk."""
        with self._lock:
            if not self._is_dirty:
                return
            self._is_dirty = False
            with self._writing():
                os.fsync(self._fd)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutriderError(f"{self._path} cannot be written: {error.strerror}") from error

    def finish(self) -> None:
        """The file is the output."""
        self.sync()

    def close(self) -> None:
        """Closes the file, which ends the lock."""
        with self._lock:  # another thread may be writing through
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def read_answers(name: str, lines: Iterable[bytes]) -> Iterator[tuple[bytes, Answer]]:
    """Each whole line and what it says. A last line that was cut short is left out.

    Args:
        name: Of the file, for errors.
        lines: With their ends, as files give them.

    Raises:
        InvalidRequest: A line is no answer of a batch: the file is somebody else's.
    """
    for number, raw in enumerate(lines, start=1):
        if not raw.endswith(b"\n"):
            cut = raw.rstrip(
                b"\0"
            )  # what a file system may leave of blocks that were never written
            if cut[: len(LINE_BEGINS)] == LINE_BEGINS[: len(cut)]:
                return
        try:
            answer = read(raw)
        except ValueError as error:
            raise InvalidRequest(
                f"{name}, line {number}, is no answer of a batch ({error}); take another output"
            ) from None
        yield raw, answer
