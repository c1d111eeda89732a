"""The demonstration models that come with the package; see README.md beside this file."""

from __future__ import annotations

from pathlib import Path

NAMES = ("target", "draft", "draft-small")


def path(name: str) -> Path:
    """Folder of a shipped checkpoint, loadable with `transformers`.

    Raises:
        ValueError: not one of `NAMES`.
    """
    if name not in NAMES:
        raise ValueError(f"demonstration model {name!r}: choose among {', '.join(NAMES)}")
    return Path(__file__).resolve().parent / name
