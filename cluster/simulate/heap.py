"""The virtual clock: what happens next, and a digest of everything that has.

Events of the same moment happen in the order in which they were planned, so one seed gives one run, bit by bit.
"""

from __future__ import annotations

import hashlib
import heapq
import struct
from collections.abc import Callable


class Timer:
    """A planned event."""

    __slots__ = ("action", "when")

    def __init__(self, when: float, action: Callable[[], None]) -> None:
        self.when = when
        """Seconds."""
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """It will not happen."""
        self.action = None


class Heap:
    """Planned events, the earliest first."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self._planned: list[tuple[float, int, Timer]] = []
        self._number = 0

    def at(self, when: float, action: Callable[[], None]) -> Timer:
        """Plans an event; one in the past happens next.

        Args:
            when: Seconds.
            action: What happens. `now` is its time then.
        """
        timer = Timer(max(when, self.now), action)
        self._number += 1
        heapq.heappush(self._planned, (timer.when, self._number, timer))
        return timer

    def run(self, until: float) -> None:
        """Lets happen what is planned up to a time, and what that plans; `now` is that time afterwards, or that of the last event
        if nothing is left."""
        while self._planned and self._planned[0][0] <= until:
            when, _, timer = heapq.heappop(self._planned)
            if timer.action is not None:
                self.now = when
                timer.action()
        if self._planned:
            self.now = until


class EventRecord:
    """What happened, as a digest."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.num_events = 0

    def note(self, when: float, who: str, what: str, payload: bytes = b"") -> None:
        """Takes in an event.

        Args:
            when: Seconds.
            who: Name of the process or stream.
            what: The kind of the event.
            payload: Its bytes, such as a message.
        """
        self.num_events += 1
        self._digest.update(struct.pack("<dI", when, len(payload)))
        self._digest.update(f"{who} {what} ".encode())
        self._digest.update(payload)

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return self._digest.hexdigest()
