"""A timeline of what actors did: for Perfetto and Chrome as a file, for the terminal as a strip. Pure.

The file is the Trace Event Format's JSON object form (Google, "Trace Event Format", 2016): complete events (`ph` X) with
times in microseconds, one thread a track, and metadata events that name and order them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from outrider.actors.trace import TraceRecord

_PROCESS = 1
"""All tracks are threads of one process: the viewer then shows them below each other."""

_SHADES = " ░▒▓█"
"""From idle to busy."""

Span = tuple[float, float]
"""From and to, in microseconds."""


class TraceFile(TypedDict):
    """The JSON object that the viewers read."""

    traceEvents: list[dict[str, object]]
    displayTimeUnit: str
    otherData: dict[str, object]


def trace_file(records: Iterable[TraceRecord], *, tracks: Sequence[str] = ()) -> TraceFile:
    """The records as a trace that begins at time 0.

    Args:
        records: In any order.
        tracks: The order of tracks, from above; others follow by name.
    """
    ordered = sorted(records, key=lambda record: (record.start_us, -record.duration_us))
    threads = {name: number for number, name in enumerate(_track_order(ordered, tracks), start=1)}
    start_us = ordered[0].start_us if ordered else 0.0
    events = [_metadata("process_name", 0, {"name": "outrider"})]
    for name, thread in threads.items():
        events.append(_metadata("thread_name", thread, {"name": name}))
        events.append(_metadata("thread_sort_index", thread, {"sort_index": thread}))
    for record in ordered:
        events.append(
            {
                "name": record.name,
                "cat": record.track,
                "ph": "X",
                "ts": round(record.start_us - start_us, 3),
                "dur": round(record.duration_us, 3),
                "pid": _PROCESS,
                "tid": threads[record.track],
                "args": dict(record.args),
            }
        )
    return TraceFile(
        traceEvents=events,
        displayTimeUnit="ms",
        otherData={"start_unix_us": start_us},
    )


def between(records: Iterable[TraceRecord], start_us: float, end_us: float) -> list[TraceRecord]:
    """The records of which some part lies in the time given."""
    return [
        record
        for record in records
        if record.start_us < end_us and record.start_us + record.duration_us > start_us
    ]


def spans(records: Iterable[TraceRecord]) -> list[Span]:
    """When something ran: the records' times, overlaps merged, in order."""
    merged: list[Span] = []
    for start, end in sorted((r.start_us, r.start_us + r.duration_us) for r in records):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def covered_us(times: Iterable[Span], start_us: float, end_us: float) -> float:
    """How much of the time given the spans cover. Spans do not overlap."""
    return sum(max(0.0, min(end, end_us) - max(start, start_us)) for start, end in times)


def both_us(one: Sequence[Span], other: Sequence[Span]) -> float:
    """For how long both ran. Spans of each are in order and do not overlap."""
    total, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        start, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        total += max(0.0, end - start)
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total


def strip(records: Iterable[TraceRecord], *, start_us: float, end_us: float, width: int) -> str:
    """One line that is dark where the records' track was busy.

    Args:
        records: Of one track.
        start_us: Time of the left edge.
        end_us: Time of the right edge, later.
        width: Characters.
    """
    times = spans(between(records, start_us, end_us))
    cell_us = (end_us - start_us) / width
    shares = []
    for column in range(width):
        left_us = start_us + column * cell_us
        shares.append(covered_us(times, left_us, left_us + cell_us) / cell_us)
    return "".join(_SHADES[min(len(_SHADES) - 1, round(s * (len(_SHADES) - 1)))] for s in shares)


def _track_order(records: Sequence[TraceRecord], first: Sequence[str]) -> list[str]:
    """The tracks that occur: those named first, then the others."""
    names = {record.track for record in records}
    return [name for name in first if name in names] + sorted(names - set(first))


def _metadata(kind: str, thread: int, args: dict[str, object]) -> dict[str, object]:
    """An event that names or orders something."""
    return {"name": kind, "ph": "M", "pid": _PROCESS, "tid": thread, "args": args}
