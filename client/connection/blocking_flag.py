"""A flag to wait for in a thread, where a signal ends the wait whenever it comes.

Python handles signals in the main thread, between any two of its steps. A wait for a lock notices one that comes while it waits,
but not one that came just before, so no wait here is longer than `LOOK_UP_S` at a time. And a `KeyboardInterrupt` just after a
`threading.Event` has taken its lock leaves it taken for ever; a `SimpleQueue` has none that Python code takes.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue
from time import monotonic

LOOK_UP_S = 0.5
"""Longest time between looks for a signal."""


class BlockingFlag:
    """Is set once. Any number of threads wait for it."""

    def __init__(self) -> None:
        self._is_set = False
        self._woken = SimpleQueue[None]()
        """Holds an item once the flag is set. Who takes it puts it back, unless a signal comes between."""

    def set(self) -> None:
        """Sets it; whoever waits goes on."""
        self._is_set = True
        self._woken.put(None)

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def wait(self, seconds: float | None) -> bool:
        """Waits until it is set, or the seconds are over (None: without end). Returns whether it is set."""
        end_s = float("inf") if seconds is None else monotonic() + seconds
        while not self._is_set and (left_s := end_s - monotonic()) > 0:
            try:
                self._woken.get(timeout=min(left_s, LOOK_UP_S))
            except Empty:
                continue
            self._woken.put(None)
        return self._is_set
