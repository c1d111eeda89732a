"""Where files lie: on this machine, or at a place that fsspec reaches (`s3://`, `gs://`, `memory://`, ...), and reading the input there, as often as need be.

Those of a batch are checked before anything is done: each can be read or written so, and no two are the same.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import IO, Any

from outrider.client.connection.errors import InvalidRequest, OutriderError

_LOCAL = "file://"

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Longest line: four times what a request may be. Beyond it the file is no JSON Lines, and would not fit in memory."""

BOM = b"\xef\xbb\xbf"


def is_remote(place: str) -> bool:
    """True for a URL of another scheme than `file`."""
    return "://" in place and not place.startswith(_LOCAL)


def local_path(place: str) -> Path:
    """The path of a local file."""
    return Path(place.removeprefix(_LOCAL))


def remote(place: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    Raises:
        InvalidRequest: fsspec, or its part for this scheme, is not installed, or knows no such scheme.
        OutriderError: The store cannot be connected to.
    """
    try:
        core = importlib.import_module("fsspec.core")
        filesystem, path = core.url_to_fs(place)
    except ImportError as error:
        raise InvalidRequest(
            f"{place} needs more than is installed ({error}); pip install 'outrider[batch]', "
            "and for s3:// or gs:// s3fs or gcsfs"
        ) from None
    except ValueError as error:
        raise InvalidRequest(f"{place} cannot be reached: {error}") from None
    except Exception as error:  # some stores are connected to at once
        raise OutriderError(f"{place}: {type(error).__name__}: {error}") from error
    return filesystem, path


@contextmanager
def remote_errors(place: str) -> Iterator[None]:
    """Names the place in whatever goes wrong there: each kind of store raises errors of its own.

    Raises:
        OutriderError: Something did.
    """
    try:
        yield
    except OutriderError:
        raise
    except Exception as error:
        raise OutriderError(f"{place}: {type(error).__name__}: {error}") from error


def read_lines(place: str) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1.

    Raises:
        InvalidRequest: The input cannot be read, or holds a line that is too long.
        OutriderError: Reading broke off.
    """
    with open_input(place) as file, remote_errors(place):
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise InvalidRequest(
                    f"{place}, line {number} is longer than {MAX_LINE_BYTES} bytes; one JSON object a line is needed"
                )
            if number == 1:
                line = line.removeprefix(BOM)
            if line := line.strip():
                yield number, line


def open_input(place: str) -> IO[bytes]:
    """The input, from its beginning.

    Raises:
        InvalidRequest: It cannot be opened.
        OutriderError: The store that holds it does not give it.
    """
    if is_remote(place):
        filesystem, path = remote(place)
        with remote_errors(place):
            file: IO[bytes] = filesystem.open(path, "rb")
            return file
    try:
        return open(local_path(place), "rb")
    except OSError as error:
        raise InvalidRequest(f"{place} cannot be read: {error.strerror}") from None


def check_files(source: str, destination: str, summary: Path | None) -> None:
    """Refuses files that a batch would spoil, or cannot use.

    Args:
        source: The input.
        destination: The output.
        summary: Gets the summary; None: there is none.

    Raises:
        InvalidRequest: Two of them are the same file, one is no ordinary file, or the summary cannot be written.
    """
    places = {"input": source, "output": destination}
    if summary is not None:
        places["--summary"] = str(summary)
    for (one, first), (other, second) in combinations(places.items(), 2):
        if _is_same(first, second):
            raise InvalidRequest(f"{one} and {other} are the same file, {second}")
    for name, path in _local(places):
        # An input is read more than once, an output is read when the run goes on.
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "no ordinary file"
            raise InvalidRequest(f"{name} {path} is {kind}")
    if summary is None:
        return
    if not summary.absolute().parent.is_dir():
        raise InvalidRequest(f"--summary {summary}: there is no folder {summary.absolute().parent}")
    if not os.access(summary if summary.exists() else summary.absolute().parent, os.W_OK):
        raise InvalidRequest(f"--summary {summary} cannot be written: permission denied")


def _local(places: dict[str, str]) -> Iterator[tuple[str, Path]]:
    """Those on this machine.

    Raises:
        InvalidRequest: No file can have such a name.
    """
    for name, place in places.items():
        if "\0" in place:
            raise InvalidRequest(f"{name} {place!r} is no name of a file: it holds a zero byte")
        if not is_remote(place):
            yield name, local_path(place)


def _is_same(first: str, second: str) -> bool:
    """True for two names of one file."""
    if is_remote(first) or is_remote(second):
        return first == second
    one, other = local_path(first), local_path(second)
    if "\0" in first + second:
        return False
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()
