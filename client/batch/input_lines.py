"""Reading the input, as often as need be: local files, and whatever fsspec reaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from outrider.client.batch.places import is_remote, local_path, remote, remote_errors
from outrider.client.connection.errors import InvalidRequest

MAX_LINE_BYTES = 16 * 1024 * 1024
"""Longest line: four times what a request may be. Beyond it the file is no JSON Lines, and would not fit in memory."""

_BOM = b"\xef\xbb\xbf"


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
                line = line.removeprefix(_BOM)
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
