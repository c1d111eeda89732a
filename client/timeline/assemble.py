"""From the records of every actor to the timeline: one clock, tracks, slices, arrows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from outrider.client.timeline.arrows import Ends, join
from outrider.client.timeline.session_names import SessionNames
from outrider.client.timeline.slices import Converter
from outrider.client.timeline.timeline_model import Mark, Slice, Timeline, TrackSource
from outrider.client.timeline.trace_collect import Gathered, TraceCollector


def assemble(collector: TraceCollector, *, request_id: str = "") -> Timeline:
    """The timeline of what was collected.

    Args:
        collector: The messages.
        request_id: The request that was traced, if it was one: sessions of others are left out.
    """
    origin_ns = collector.started.clock_ns
    gathered = list(collector.sources.values())
    sessions = SessionNames(
        record
        for one in gathered
        if one.source.role == "coordinator"
        for record in one.records
        if record.name == request_id or not request_id
    )
    slices: list[Slice] = []
    marks: list[Mark] = []
    sources: list[TrackSource] = []
    ends = Ends()
    for one, process in zip(gathered, _processes(gathered), strict=True):
        converter = Converter(
            one,
            process=process,
            origin_ns=origin_ns,
            sessions=sessions,
            is_scoped=bool(request_id),
            ends=ends,
        )
        converter.run()
        slices += converter.slices
        marks += converter.marks
        sources.append(_source(one, process, converter))
    arrows, flights = join(ends, sources)
    slices += flights
    end_us = max((source.end_us for source in sources), default=0.0)
    if collector.end_ns is not None:
        end_us = (collector.end_ns - origin_ns) / 1e3
    return Timeline(
        version=collector.started.version,
        start_unix_us=collector.started.unix_ns / 1e3,
        duration_us=round(end_us, 3),
        request_id=request_id,
        ended=collector.ended,
        sources=tuple(sources),
        slices=tuple(slices),
        arrows=tuple(arrows),
        marks=tuple(marks),
    )


def _processes(gathered: Iterable[Gathered]) -> list[str]:
    """What each source is called: its name, with its start if there are several of it."""
    names: list[str] = []
    seen: dict[str, int] = {}
    for one in gathered:
        name = one.source.name
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} (start {one.source.incarnation})")
    return names


def _source(one: Gathered, process: str, converter: Converter) -> TrackSource:
    clock, is_own = one.clock, one.source.role == "coordinator"
    error_ns = 0.0 if is_own else clock.error_ns
    return TrackSource(
        process=process,
        name=one.source.name,
        role=one.source.role,
        incarnation=one.source.incarnation,
        pid=one.source.pid,
        start_us=converter.start_us,
        end_us=max(converter.end_us, converter.start_us),
        num_records=len(one.records),
        num_lost=one.num_lost,
        clock_offset_us=round(clock.offset_ns / 1e3, 3),
        clock_error_us=None if error_ns is None else round(error_ns / 1e3, 3),
        gone=one.gone,
    )
