"""Whether a file is still the same: for what is read again when somebody has exchanged or written it."""

from __future__ import annotations

import os
from pathlib import Path

FileVersion = tuple[int, int, int] | None
"""Differs once the file has been exchanged or written; None while there is none."""


def file_version(path: str | Path) -> FileVersion:
    """The version of a file, links followed."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
