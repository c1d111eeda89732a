"""What an actor does and when, for a timeline: recorded only while someone asks for it.

An actor has one `Recorder`, and each running trace taps it. Without a tap a hook costs a look at `is_on`; only what the
worker does at the moment is always known, so that a trace that begins in the middle of something knows of what. Each tap is
a bounded buffer: a reader that is too slow loses the oldest spans, and how many is counted.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Mapping

from outrider.v1 import trace_pb2

TAP_CAPACITY = 16384
"""Spans that wait for a reader, at most: seconds of the fastest decoding, some megabytes."""

Arg = float | str | Mapping[str, "Arg"]
"""An argument of a span: a number, a word, or several arguments."""


def args_of(values: Mapping[str, Arg]) -> trace_pb2.TraceArgs:
    """Arguments as a message."""
    made = trace_pb2.TraceArgs()
    fill(made, values)
    return made


def fill(args: trace_pb2.TraceArgs, values: Mapping[str, Arg]) -> None:
    """Adds arguments to those of a message; in its place, for a copy costs as much again."""
    for name, value in values.items():
        if isinstance(value, str):
            args.words[name] = value
        elif isinstance(value, int | float):
            args.numbers[name] = value
        else:
            fill(args.groups[name], value)


class Tap:
    """The spans of one trace. Any thread puts, one takes."""

    def __init__(self, capacity: int, *, nodes: bool) -> None:
        """Args:
        capacity: Spans to hold, at most.
        nodes: What became of each candidate node is wanted.
        """
        self.nodes = nodes
        self._numbers = itertools.count(1)
        self._spans: deque[tuple[int, trace_pb2.TraceSpan]] = deque(maxlen=capacity)
        self._newest = 0
        self._num_taken = 0

    def put(self, span: trace_pb2.TraceSpan) -> None:
        """Adds a span, dropping the oldest if the tap is full."""
        if not self.nodes and any(share.marks for share in span.shares):
            span = _without_marks(span)  # They are for another trace.
        self._spans.append((next(self._numbers), span))

    def take(self, limit: int) -> list[trace_pb2.TraceSpan]:
        """Takes the oldest spans, at most so many."""
        taken: list[trace_pb2.TraceSpan] = []
        while len(taken) < limit:
            try:
                number, span = self._spans.popleft()
            except IndexError:
                # Nothing waits, so every number given so far was taken or dropped.
                break
            # Two threads may put in another order than they drew numbers.
            self._newest = max(self._newest, number)
            taken.append(span)
        self._num_taken += len(taken)
        return taken

    @property
    def num_lost(self) -> int:
        """Spans dropped so far, as far as newer ones were taken."""
        return max(self._newest - self._num_taken, 0)


class Recorder:
    """Where an actor records. The worker's thread and the event loop use it side by side."""

    def __init__(self, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.clock_ns = clock_ns
        self.is_on = False
        """Whether anyone wants spans."""
        self.wants_nodes = False
        """Whether anyone wants to know what became of each candidate node."""
        self._current: tuple[str, str | Callable[[], str], int] = ("", "", 0)
        """Track and name of what the worker does, and since when. No name: nothing that is recorded."""
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

    def add(self, span: trace_pb2.TraceSpan) -> None:
        """Hands a span to every trace."""
        for tap in self._taps:
            tap.put(span)

    def enter(self, track: str, name: str | Callable[[], str]) -> None:
        """The worker begins something. What it did before is over; if it was not left, it is not recorded.

        Args:
            track: Where it is shown.
            name: What it is called; or how to find out, where that takes time and does not change before it is left. Found out only while
                somebody traces, by the worker's thread.
        """
        self._current = (track, _named(name) if self.is_on else name, self.clock_ns())

    def leave(
        self,
        *,
        name: str = "",
        args: Mapping[str, Arg] | None = None,
        shares: list[trace_pb2.TraceShare] | None = None,
    ) -> None:
        """The worker ends what it entered.

        Args:
            name: What it is called after all; empty: as it was entered.
            args: What more is known of it.
            shares: Of the sessions in it.
        """
        track, entered, since_ns = self._current
        now_ns = self.clock_ns()
        self._current = ("", "", now_ns)
        if not self.is_on or not entered:
            return
        self.add(
            trace_pb2.TraceSpan(
                name=name or _named(entered),
                track=track,
                start_ns=since_ns,
                duration_ns=now_ns - since_ns,
                args=args_of(args or {}),
                shares=shares,
            )
        )

    @property
    def current(self) -> trace_pb2.TraceSpan | None:
        """What the worker does, as far as it is known; None: nothing that is recorded."""
        track, name, since_ns = self._current
        if not name or not isinstance(name, str):
            return None
        return trace_pb2.TraceSpan(name=name, track=track, start_ns=since_ns)


def _without_marks(span: trace_pb2.TraceSpan) -> trace_pb2.TraceSpan:
    plain = trace_pb2.TraceSpan()
    plain.CopyFrom(span)
    for share in plain.shares:
        del share.marks[:]
    return plain


def _named(name: str | Callable[[], str]) -> str:
    return name if isinstance(name, str) else name()
