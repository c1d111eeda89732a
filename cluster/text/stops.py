"""Stop strings in streamed text. Pure.

Invariant: what comes out does not depend on how the text was cut into pieces. The output ends before the stop string
that is completed first, reading character by character; of several completed by the same character, the longest.
Text is held back only as far as it may still become a stop string.
"""

from __future__ import annotations

from typing import NamedTuple


class Passed(NamedTuple):
    """What a piece of text made certain."""

    text: str
    """Text that is output for certain."""

    stop: str | None
    """The stop string that ended the output, None while it goes on."""


class StopStrings:
    """Holds text back while it may still become a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""

    def feed(self, text: str, *, armed: bool = True) -> Passed:
        """Takes in more text.

        Args:
            text: The text that follows.
            armed: False if a stop string that this piece completes must not end the output.
        """
        if not self._stops:
            return Passed(text=text, stop=None)
        buffer = self._held + text
        if armed:
            stop, end = self._first_completed(buffer)
            if stop is not None:
                self._held = ""
                return Passed(text=buffer[: end - len(stop)], stop=stop)
        certain = len(buffer) - self._open_suffix(buffer)
        self._held = buffer[certain:]
        return Passed(text=buffer[:certain], stop=None)

    def flush(self) -> str:
        """The text still held back, at the end of the output."""
        held, self._held = self._held, ""
        return held

    def _first_completed(self, buffer: str) -> tuple[str | None, int]:
        """The stop string completed first in the buffer, and where it ends. Only the new text can complete one."""
        best: tuple[str | None, int] = (None, len(buffer) + 1)
        for stop in self._stops:
            start = buffer.find(stop, max(0, len(self._held) - len(stop) + 1))
            if start < 0:
                continue
            end = start + len(stop)
            if end < best[1] or (end == best[1] and len(stop) > len(best[0] or "")):
                best = (stop, end)
        return best

    def _open_suffix(self, buffer: str) -> int:
        """Length of the longest suffix that is a proper prefix of a stop string."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(buffer)), longest, -1):
                if buffer.endswith(stop[:length]):
                    longest = length
                    break
        return longest
