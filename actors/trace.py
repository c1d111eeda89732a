"""What an actor did and when: a bounded ring of records, kept by workers, read for a timeline.

Times are of the wall clock (`time.time_ns`), so that records of several processes of one machine share an axis.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRecord:
    """One thing that took time."""

    track: str
    """Who did it: `target`, a drafter's name, `coordinator`."""

    name: str
    """What it was, for instance `verify`, `prefill`, `draft`."""

    start_us: float
    """When it began, in microseconds since the epoch."""

    duration_us: float
    """How long it took, in microseconds."""

    args: dict[str, int | float | str] = field(default_factory=dict)
    """Counts and names that explain it."""


class TraceRing:
    """The last records. One thread appends, others take snapshots."""

    def __init__(self, capacity: int) -> None:
        """Keeps the last `capacity` records."""
        self._records: deque[TraceRecord] = deque(maxlen=capacity)

    def append(self, record: TraceRecord) -> None:
        """Adds a record, dropping the oldest if the ring is full."""
        self._records.append(record)

    def snapshot(self) -> list[TraceRecord]:
        """A copy, oldest first."""
        while True:
            try:
                return list(self._records)
            except RuntimeError:
                # Appended to while it was copied; the next try takes microseconds.
                continue
