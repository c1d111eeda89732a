"""The files of a batch before anything is done: each is one that can be read or written so, and no two are the same."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

from outrider.client.batch.places import is_remote, local_path
from outrider.client.connection.errors import InvalidRequest


def check_files(source: str, destination: str, summary: Path | None = None) -> None:
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
