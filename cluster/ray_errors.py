"""What Ray's errors say, short enough for a user. Pure; needs no Ray."""

from __future__ import annotations


def first_line(error: Exception) -> str:
    """Ray's messages run over many lines; the first says what happened."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
