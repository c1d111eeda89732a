"""Warnings about what a peer does again and again: one line says it as well as a thousand, which would fill a disk.

The first of a kind is told at once. Those that follow are counted, and told with the next line, `GAP_S` later at the earliest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

GAP_S = 10.0
"""Between two lines about the same peer that say the same."""


@dataclass(slots=True)
class _Told:
    at_s: float
    untold: int = 0
    last: str = ""


class SeldomLog:
    """Warnings, each kind about each peer now and then. On one thread."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """Args:
        log: Of structlog; takes the lines.
        clock: Seconds; monotone.
        """
        self._log = log
        self._clock = clock
        self._told: dict[tuple[str, str], _Told] = {}

    def warning(self, event: str, *, drafter: str, reason: str) -> None:
        """Tells what happened, or counts it.

        Args:
            event: What, as a log calls it.
            drafter: Who is at fault.
            reason: Why; of those that are counted, the last is told.
        """
        now_s = self._clock()
        told = self._told.get((event, drafter))
        if told is None:
            self._told[event, drafter] = _Told(now_s)
            self._log.warning(event, drafter=drafter, reason=reason)
            return
        told.untold, told.last = told.untold + 1, reason
        if now_s - told.at_s >= GAP_S:
            self._tell(event, drafter, told)
            told.at_s, told.untold = now_s, 0

    def forget(self, drafter: str) -> None:
        """Tells what was counted and not told, because nothing follows: the peer is gone."""
        for event, name in [key for key in self._told if key[1] == drafter]:
            told = self._told.pop((event, name))
            if told.untold:
                self._tell(event, name, told)

    def _tell(self, event: str, drafter: str, told: _Told) -> None:
        self._log.warning(event, drafter=drafter, reason=told.last, times=told.untold)
