"""What an actor does and when, for a timeline: recorded only while someone asks for it.

An actor has one `Recorder`, and each running trace taps it. Without a tap a hook costs a look at `is_on`; only what the
worker does at the moment is always known, so that a trace that begins in the middle of something knows of what. Each tap is
a bounded buffer: a reader that is too slow loses the oldest records, and how many is counted.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable

from outrider.v1 import trace_pb2

TAP_CAPACITY = 16384
"""Records that wait for a reader, at most: seconds of the fastest decoding, some megabytes."""

IDLE = trace_pb2.TRACE_KIND_UNSPECIFIED
"""The worker is between things that are recorded."""


class Tap:
    """The records of one trace. Any thread puts, one takes."""

    def __init__(self, capacity: int, *, nodes: bool) -> None:
        """Args:
        capacity: Records to hold, at most.
        nodes: What became of each candidate node is wanted.
        """
        self.nodes = nodes
        self._numbers = itertools.count(1)
        self._records: deque[tuple[int, trace_pb2.TraceRecord]] = deque(maxlen=capacity)
        self._newest = 0
        self._num_taken = 0

    def put(self, record: trace_pb2.TraceRecord) -> None:
        """Adds a record, dropping the oldest if the tap is full."""
        self._records.append((next(self._numbers), record))

    def take(self, limit: int) -> list[trace_pb2.TraceRecord]:
        """Takes the oldest records, at most so many."""
        taken: list[trace_pb2.TraceRecord] = []
        while len(taken) < limit:
            try:
                number, record = self._records.popleft()
            except IndexError:
                # Nothing waits, so every number given so far was taken or dropped.
                break
            # Two threads may put in another order than they drew numbers.
            self._newest = max(self._newest, number)
            taken.append(record)
        self._num_taken += len(taken)
        return taken

    @property
    def num_lost(self) -> int:
        """Records dropped so far, as far as newer ones were taken."""
        return max(self._newest - self._num_taken, 0)


class Recorder:
    """Where an actor records. The worker's thread and the event loop use it side by side."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.clock_ns = clock_ns
        self.is_on = False
        """Whether anyone wants records."""
        self.wants_nodes = False
        """Whether anyone wants to know what became of each candidate node."""
        self.current: tuple[trace_pb2.TraceKind.ValueType, int] = (IDLE, clock_ns())
        """What the worker does, and since when."""
        self._taps: tuple[Tap, ...] = ()

    def open(self, *, nodes: bool = False, capacity: int = TAP_CAPACITY) -> Tap:
        """Begins a trace. On the event loop."""
        tap = Tap(capacity, nodes=nodes)
        self._set((*self._taps, tap))
        return tap

    def close(self, tap: Tap) -> None:
        """Ends a trace. On the event loop. Idempotent."""
        self._set(tuple(other for other in self._taps if other is not tap))

    def _set(self, taps: tuple[Tap, ...]) -> None:
        self._taps = taps
        self.wants_nodes = any(tap.nodes for tap in taps)
        self.is_on = bool(taps)

    def add(self, record: trace_pb2.TraceRecord) -> None:
        """Hands a record to every trace."""
        for tap in self._taps:
            tap.put(record)

    def enter(self, kind: trace_pb2.TraceKind.ValueType) -> None:
        """The worker begins something. What it did before is over; if it was not left, it is not recorded."""
        self.current = (kind, self.clock_ns())

    def leave(
        self,
        record: trace_pb2.TraceRecord | None = None,
    ) -> None:
        """The worker ends what it entered.

        Args:
            record: What more is known of it; its times are filled in here, and its kind if it is not set.
        """
        kind, since_ns = self.current
        now_ns = self.clock_ns()
        self.current = (IDLE, now_ns)
        if not self.is_on or kind == IDLE:
            return
        if record is None:
            record = trace_pb2.TraceRecord()
        record.kind = record.kind or kind
        record.start_ns = since_ns
        record.duration_ns = now_ns - since_ns
        self.add(record)
