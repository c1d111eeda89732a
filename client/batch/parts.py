"""The output at a place that cannot append: parts beside it while the run goes on, one file in the end.

Answers are put to `OUT.parts/` a few hundred at a time, each part under a name of its own. What the parts hold is done. At
the end they become `OUT`, and go. Whatever the moment of a kill: an answer that is in two files is one answer, since its id
is the same, and a part goes only when `OUT` is there. There is no lock: two runs at once do the work twice.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

from outrider.client.batch.answer import Answer
from outrider.client.batch.answers_file import read_answers
from outrider.client.batch.places import remote, remote_errors
from outrider.client.connection.errors import OutriderError


class PartsOutput:
    """An output that fsspec reaches."""

    sync_every_s = 10.0
    """A kill loses what came since the last part; its records run again."""

    def __init__(self, place: str) -> None:
        """Raises:
        InvalidRequest: The place cannot be reached.
        """
        self._place = place
        self._filesystem, self._path = remote(place)
        self._folder = f"{self._path}.parts"
        self._pending: list[bytes] = []
        self._lock = threading.Lock()

    def answers(self) -> Iterator[Answer]:
        """What `OUT` and the parts hold, each answer once."""
        with remote_errors(self._place):
            seen: set[str] = set()
            if self._filesystem.exists(self._path):
                for _, answer in self._read(self._path):
                    seen.add(answer.id)
                    yield answer
            for part in self._parts():
                for _, answer in self._read(part):
                    if answer.id not in seen:
                        seen.add(answer.id)
                        yield answer

    def begin(self) -> None:
        """Makes the folder of the parts, where there are folders."""
        with remote_errors(self._place):
            self._filesystem.makedirs(self._folder, exist_ok=True)

    def append(self, line: bytes) -> None:
        """Takes one line; it is kept by the next `sync`."""
        self._pending.append(line)

    def sync(self) -> None:
        """Puts what has come as one part. What the store did not take is put by the next call."""
        with (
            self._lock
        ):  # whoever synchronises last must not go on before the part of another thread is there
            lines, self._pending = self._pending, []
            if not lines:
                return
            try:
                with (
                    remote_errors(self._place),
                    self._filesystem.open(self._new_part(), "wb") as file,
                ):
                    file.write(b"".join(lines))
            except OutriderError:
                self._pending[:0] = lines
                raise

    def finish(self) -> None:
        """Makes one file of the parts."""
        self.sync()
        with remote_errors(self._place):
            if self._parts():
                self._compose()
            for part in self._parts():
                self._filesystem.rm_file(part)
            if self._filesystem.exists(self._folder):
                self._filesystem.rm(self._folder, recursive=True)

    def close(self) -> None:
        """Puts what has come."""
        self.sync()

    def _compose(self) -> None:
        """Writes `OUT` of the parts. An older one becomes a part first, so that `OUT` is never less than it was."""
        if self._filesystem.exists(self._path):
            self._filesystem.copy(self._path, self._new_part())
            self._filesystem.rm_file(self._path)
        seen: set[str] = set()
        with self._filesystem.open(self._path, "wb") as file:
            for part in self._parts():
                for raw, answer in self._read(part):
                    if answer.id not in seen:
                        seen.add(answer.id)
                        file.write(raw)

    def _parts(self) -> list[str]:
        """The parts that there are now, whoever wrote them."""
        self._filesystem.invalidate_cache()
        return sorted(self._filesystem.find(self._folder))

    def _new_part(self) -> str:
        return f"{self._folder}/{uuid.uuid4().hex}.jsonl"

    def _read(self, path: str) -> Iterator[tuple[bytes, Answer]]:
        with self._filesystem.open(path, "rb") as file:
            yield from read_answers(path, file)
