"""What Ray's errors say, short enough for a user. Pure; needs no Ray."""

from __future__ import annotations

TRACEBACK = "Traceback (most recent call last):"

RAISED = ("ray::", "\x1b[36mray::")
"""How Ray begins, without colours or with them, what it says of a method that raised; the lines of the traceback follow."""


def first_line(error: Exception) -> str:
    """Ray's messages run over many lines; the first says what happened, or of a traceback the last."""
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    if lines[0].startswith(RAISED):
        return lines[-1].strip()
    before, is_traceback, _ = lines[0].partition(TRACEBACK)
    return before + lines[-1].strip() if is_traceback else lines[0]
