"""From the spans of every actor to the timeline: one clock, tracks, slices, arrows between the two ends of a message. Pure.

What spans there are is the actors' affair; this knows their form only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from outrider.client.timeline.timeline_model import (
    NETWORK,
    REQUESTS,
    Arrow,
    Mark,
    Slice,
    Timeline,
    TrackSource,
)
from outrider.client.timeline.trace_collect import Gathered, TraceCollector
from outrider.v1 import trace_pb2

TICK_US = 1.0
"""Least length of a slice that an arrow begins or ends at: viewers tie arrows to slices."""

Session = tuple[str, int, int]
"""A session's target, the start of it, and its handle there."""


def assemble(collector: TraceCollector, *, request_id: str = "") -> Timeline:
    """The timeline of what was collected.

    Args:
        collector: The messages.
        request_id: The request that was traced, if it was one: sessions of others are left out.
    """
    gathered = list(collector.sources.values())
    drawing = _Drawing(gathered, collector.started.clock_ns, request_id)
    sources = [
        drawing.add(one, process)
        for one, process in zip(gathered, _processes(gathered), strict=True)
    ]
    arrows = drawing.join({source.process: source.clock_error_us for source in sources})
    end_us = max((source.end_us for source in sources), default=0.0)
    if collector.end_ns is not None:
        end_us = (collector.end_ns - collector.started.clock_ns) / 1e3
    return Timeline(
        version=collector.started.version,
        emulated=collector.started.emulated,
        start_unix_us=collector.started.unix_ns / 1e3,
        duration_us=round(end_us, 3),
        request_id=request_id,
        ended=collector.ended,
        sources=tuple(sources),
        slices=tuple(drawing.slices),
        arrows=tuple(arrows),
        marks=tuple(drawing.marks),
    )


def _processes(gathered: Iterable[Gathered]) -> list[str]:
    """What each source is called: its name, with its start if it came again, and a number if that start did: a stream that broke."""
    names: list[str] = []
    for one in gathered:
        wanted = called = one.source.name
        if wanted in names:
            wanted = called = f"{wanted} (start {one.source.incarnation})"
        again = itertools.count(2)
        while called in names:
            called = f"{wanted} {next(again)}"
        names.append(called)
    return names


class _Drawing:
    """Spans become slices and marks."""

    def __init__(self, gathered: Iterable[Gathered], origin_ns: int, request_id: str) -> None:
        self.slices: list[Slice] = []
        self.marks: list[Mark] = []
        self._origin_ns = origin_ns
        self._is_scoped = bool(request_id)
        self._owners: dict[Session, trace_pb2.TraceOwner] = {}
        self._ends: tuple[dict[str, Slice], dict[str, Slice]] = ({}, {})
        """Where each message was sent, and where it was received."""
        for span in (span for one in gathered for span in one.spans if span.HasField("opened")):
            if span.owner.name == request_id or not request_id:
                opened = span.opened
                self._owners[opened.target, opened.incarnation, opened.handle] = span.owner
        self._handles = {handle for _, _, handle in self._owners}

    def add(self, gathered: Gathered, process: str) -> TrackSource:
        """Draws the spans of one source. Returns who that was."""
        source, clock = gathered.source, gathered.clock

        def when(time_ns: int) -> float:
            return round((clock.to_ours(time_ns) - self._origin_ns) / 1e3, 3)

        def draw(span: trace_pb2.TraceSpan, end_ns: int) -> None:
            if self._is_wanted(source, span.handles):
                start_us = when(span.start_ns)
                us = round(max(when(end_ns) - start_us, 0.0), 3)
                self._draw(span, source, process, start_us, us)

        for span in gathered.spans:
            draw(span, span.start_ns + span.duration_ns)
        if (last := gathered.current) is not None and gathered.until_ns > last.start_ns:
            # What the worker was doing when its last spans left: so much of it as is known.
            draw(last, gathered.until_ns)
        start_us = when(source.start_ns)
        error_ns = 0.0 if source.role == "coordinator" else clock.error_ns
        return TrackSource(
            process=process,
            name=source.name,
            role=source.role,
            incarnation=source.incarnation,
            pid=source.pid,
            start_us=start_us,
            end_us=max(when(gathered.until_ns), start_us),
            num_records=len(gathered.spans),
            num_lost=gathered.num_lost,
            clock_offset_us=round(clock.offset_ns / 1e3, 3),
            clock_error_us=None if error_ns is None else round(error_ns / 1e3, 3),
            gone=gathered.gone,
        )

    def _is_wanted(self, source: trace_pb2.TraceSource, handles: Iterable[int]) -> bool:
        """Whether it is about a session that is to be shown, or about none. At a drafter a handle says nothing of the target."""
        named = list(handles)
        if not named or not self._is_scoped:
            return True
        if source.role == "target":
            return any((source.name, source.incarnation, one) in self._owners for one in named)
        return any(one in self._handles for one in named)

    def _draw(
        self,
        span: trace_pb2.TraceSpan,
        source: trace_pb2.TraceSource,
        process: str,
        start_us: float,
        us: float,
    ) -> None:
        args = _args(span.args)
        track = span.track
        if span.HasField("owner"):
            owner = span.owner
            args = {"request": owner.request, "index": owner.index, "name": owner.name} | args
            track = track or f"request {owner.request} {owner.name}"
        made = Slice(
            process=process if span.track else REQUESTS,
            track=track,
            name=span.name,
            start_us=start_us,
            duration_us=max(us, TICK_US) if span.HasField("flow") else us,
            args=args,
        )
        self.slices.append(made)
        if span.HasField("flow"):
            self._ends[span.flow.is_received][span.flow.id] = made
        for share in span.shares:
            found = self._owners.get((source.name, source.incarnation, share.handle))
            if found is not None or not self._is_scoped:
                self._share(made, share, found)

    def _share(
        self, whole: Slice, share: trace_pb2.TraceShare, owner: trace_pb2.TraceOwner | None
    ) -> None:
        label = f"session {share.handle}"
        if owner is not None:
            part = f".{owner.index}" if owner.index else ""
            label = f"request {owner.request}{part} {owner.name}"
        track = f"{label} at {whole.process}"
        args = {"target": whole.process, "request": owner.request if owner is not None else 0}
        self.slices.append(
            Slice(
                process=REQUESTS,
                track=track,
                name=whole.name,
                start_us=whole.start_us,
                duration_us=whole.duration_us,
                args=args | _args(share.args),
            )
        )
        self.marks += [
            Mark(
                process=REQUESTS,
                track=track,
                name=mark.name,
                at_us=whole.end_us,
                args=_args(mark.args),
            )
            for mark in share.marks
        ]

    def join(self, errors: dict[str, float | None]) -> list[Arrow]:
        """Arrows of the messages of which both ends are known. Draws a slice on the network's track as long as each was under way.

        A time that comes out negative, because clocks are compared only so well, is shown as 0.

        Args:
            errors: By process, how wrong its times may be, in microseconds.
        """
        all_sent, all_received = self._ends
        arrows: list[Arrow] = []
        for flow, sent in sorted(all_sent.items(), key=lambda item: item[1].start_us):
            received = all_received.get(flow)
            if received is None:
                continue
            latency_us = round(received.start_us - sent.start_us, 3)
            args = {**sent.args, "latency_us": latency_us}
            one, other = errors[sent.process], errors[received.process]
            if one is not None and other is not None:
                args["clock_error_us"] = round(one + other, 3)
            arrows.append(Arrow(name=sent.name, sent=sent, received=received))
            self.slices.append(
                Slice(
                    process=NETWORK,
                    track=f"{sent.process} → {received.process}",
                    name=sent.name,
                    start_us=sent.start_us,
                    duration_us=max(latency_us, 0.0),
                    args=args,
                )
            )
        return arrows


def _args(args: trace_pb2.TraceArgs) -> dict[str, Any]:
    """Arguments as JSON holds them: whole numbers as such."""
    found: dict[str, Any] = {
        name: int(value) if value.is_integer() else value
        for name, value in sorted(args.numbers.items())
    }
    found |= dict(sorted(args.words.items()))
    return found | {name: _args(group) for name, group in sorted(args.groups.items())}
