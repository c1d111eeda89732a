"""Files of certificates and tokens: read whole, and again when somebody has exchanged or written them."""

from __future__ import annotations

import os
from pathlib import Path

MAX_BYTES = 16 << 20
"""Largest file that is read: a device or a model's weights may stand there by mistake, and never ends or fills the memory."""

FileVersion = tuple[int, int, int] | None
"""Differs once the file has been exchanged or written; None while there is none."""


def read_small(path: Path) -> bytes:
    """The content of an ordinary file.

    Raises:
        OSError: It cannot be read, is no ordinary file, or is too large; `strerror` says which.
    """
    if path.exists() and not path.is_file():
        raise OSError(0, "it is no ordinary file")
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(0, f"it has more than {MAX_BYTES >> 20} MiB")
    return content


def file_version(path: str | Path) -> FileVersion:
    """The version of a file, links followed."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
