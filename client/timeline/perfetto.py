"""A timeline as a file for Perfetto and Chrome. Pure; `timeline_file` takes it back.

The file is the Trace Event Format's JSON object form (Google, "Trace Event Format", 2016): complete events (`ph` X), flow
events (s, f), instants (i) with times in microseconds; metadata events name and order processes and threads. A thread holds
slices that lie one after the other or one inside the other, so a track with others is spread over several threads; the
category of an event is the track it belongs to. What a viewer does not need stands in `otherData`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypedDict

from outrider.client.timeline.timeline_model import (
    DRAFTING,
    NETWORK,
    REQUESTS,
    WORK,
    Arrow,
    Slice,
    Timeline,
)

FORMAT = "outrider-timeline-1"
"""Says in `otherData` that the file can be read back."""

_ROLES = ("coordinator", "target", "drafter")

HEAD = ("version", "emulated", "start_unix_us", "duration_us", "request_id", "ended")
"""Fields of a timeline that stand in `otherData` as they are."""


class TraceFile(TypedDict):
    """The JSON object that the viewers read."""

    traceEvents: list[dict[str, Any]]
    displayTimeUnit: str
    otherData: dict[str, Any]


def write(timeline: Timeline) -> TraceFile:
    """The timeline as a file."""
    events: list[dict[str, Any]] = []
    # Viewers drop what has a negative time: of what was under way when recording began.
    early = (one.start_us for one in timeline.slices if one.start_us < 0.0)
    origin_us = min(early, default=0.0)
    places: dict[int, tuple[int, int]] = {}
    lanes: dict[tuple[str, str], tuple[int, int]] = {}
    processes = _process_order(timeline)
    tracks: dict[str, dict[str, list[Slice]]] = {}
    for one in timeline.slices:
        tracks.setdefault(one.process, {}).setdefault(one.track, []).append(one)
    for pid, process in enumerate(processes, start=1):
        events.append(_meta("process_name", pid, 0, {"name": process}))
        events.append(_meta("process_sort_index", pid, 0, {"sort_index": pid}))
        tid = 0
        for track, on_track in _ordered(process, tracks.get(process, {})):
            for lane, held in enumerate(spread(on_track), start=1):
                tid += 1
                name = track if lane == 1 else f"{track} ({lane})"
                events.append(_meta("thread_name", pid, tid, {"name": name}))
                events.append(_meta("thread_sort_index", pid, tid, {"sort_index": tid}))
                lanes.setdefault((process, track), (pid, tid))
                for one in held:
                    places[id(one)] = (pid, tid)
                    events.append(_complete(one, pid, tid, origin_us))
    for number, arrow in enumerate(timeline.arrows, start=1):
        events += _flow(arrow, number, places, origin_us)
    for mark in timeline.marks:
        pid, tid = lanes.get((mark.process, mark.track), (0, 0))
        events.append(
            {
                "name": mark.name,
                "cat": mark.track,
                "ph": "i",
                "s": "t",
                "ts": round(mark.at_us - origin_us, 3),
                "pid": pid,
                "tid": tid,
                "args": dict(mark.args),
            }
        )
    head = {name: getattr(timeline, name) for name in HEAD}
    other = {
        "format": FORMAT,
        **head,
        "clock": "microseconds since `origin_us`, which counts from when recording began, by the coordinator's clock",
        "origin_us": origin_us,
        "sources": [asdict(source) for source in timeline.sources],
    }
    return TraceFile(traceEvents=events, displayTimeUnit="ms", otherData=other)


def spread(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Slices of one track on as few lanes as one pass finds, each free of overlaps that are not nesting. At least one lane."""
    lanes: list[list[Slice]] = [[]]
    stacks: list[list[float]] = [[]]
    for one in sorted(slices, key=lambda one: (one.start_us, -one.duration_us)):
        for lane, stack in zip(lanes, stacks, strict=True):
            while stack and stack[-1] <= one.start_us:
                stack.pop()
            if not stack or one.end_us <= stack[-1]:
                stack.append(one.end_us)
                lane.append(one)
                break
        else:
            lanes.append([one])
            stacks.append([one.end_us])
    return lanes


def _process_order(timeline: Timeline) -> list[str]:
    """Requests above, then coordinator, targets, the network, drafters."""
    used = {one.process for one in timeline.slices} | {one.process for one in timeline.marks}
    by_role: dict[str, list[str]] = {role: [] for role in _ROLES}
    for source in timeline.sources:
        by_role.setdefault(source.role, []).append(source.process)
    first = [*([REQUESTS] if REQUESTS in used else []), *by_role.pop("coordinator")]
    first += [*by_role.pop("target"), *([NETWORK] if NETWORK in used else [])]
    first += [process for processes in by_role.values() for process in processes]
    return first + sorted(used - set(first))


def _ordered(process: str, tracks: Mapping[str, list[Slice]]) -> list[tuple[str, list[Slice]]]:
    """The tracks of a process: the worker's above, requests as they came, others by name."""
    if process == REQUESTS:
        begin = {track: min(one.start_us for one in held) for track, held in tracks.items()}
        return sorted(tracks.items(), key=lambda item: (begin[item[0]], item[0]))
    return sorted(tracks.items(), key=lambda item: (item[0] not in (WORK, DRAFTING), item[0]))


def _meta(kind: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": args}


def _complete(one: Slice, pid: int, tid: int, origin_us: float) -> dict[str, Any]:
    return {
        "name": one.name,
        "cat": one.track,
        "ph": "X",
        "ts": round(one.start_us - origin_us, 3),
        "dur": one.duration_us,
        "pid": pid,
        "tid": tid,
        "args": dict(one.args),
    }


def _flow(
    arrow: Arrow, number: int, places: Mapping[int, tuple[int, int]], origin_us: float
) -> Iterable[dict[str, Any]]:
    for phase, end in (("s", arrow.sent), ("f", arrow.received)):
        pid, tid = places[id(end)]
        event: dict[str, Any] = {
            "name": arrow.name,
            "cat": "message",
            "ph": phase,
            "id": number,
            "ts": round(end.start_us - origin_us, 3),
            "pid": pid,
            "tid": tid,
        }
        if phase == "f":
            # Ties the end to the slice around it; otherwise it would be tied to the next one.
            event["bp"] = "e"
        yield event
