"""Timelines on the disk: files for Perfetto, as `perfetto` writes them, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from outrider.client.timeline import perfetto
from outrider.client.timeline.perfetto import FORMAT, HEAD
from outrider.client.timeline.timeline_model import Arrow, Mark, Slice, Timeline, TrackSource


class NotATimeline(ValueError):
    """A file that was not written here."""


def save(timeline: Timeline, path: Path) -> None:
    """Writes a timeline for Perfetto.

    Raises:
        OSError: The file cannot be written.
    """
    path.write_text(json.dumps(perfetto.write(timeline), ensure_ascii=False), encoding="utf-8")


def load(path: Path) -> Timeline:
    """Reads a timeline that `save` wrote.

    Raises:
        OSError: The file cannot be read.
        NotATimeline: It holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise NotATimeline(f"it is not JSON: {error}") from error
    return read(content)


def read(content: object) -> Timeline:
    """The timeline of a file.

    Args:
        content: What its JSON holds.

    Raises:
        NotATimeline: It was not written by `save`, or was changed since; says what is wrong.
    """
    other = content.get("otherData") if isinstance(content, Mapping) else None
    if not isinstance(other, Mapping) or other.get("format") != FORMAT:
        raise NotATimeline("it is not a timeline of this version; `outrider trace` writes them")
    try:
        return _read(content, other)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NotATimeline(f"it is damaged: {error!r}") from error


def _read(content: Any, other: Mapping[str, Any]) -> Timeline:
    origin_us = float(other.get("origin_us", 0.0))
    processes: dict[int, str] = {}
    slices: list[Slice] = []
    marks: list[Mark] = []
    ends: dict[int, list[dict[str, Any]]] = {}
    by_place: dict[tuple[int, int, float], Slice] = {}
    for event in content["traceEvents"]:
        match event["ph"]:
            case "M" if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            case "X":
                made = Slice(
                    process=processes[event["pid"]],
                    track=event["cat"],
                    name=event["name"],
                    start_us=round(float(event["ts"]) + origin_us, 3),
                    duration_us=float(event["dur"]),
                    args=event["args"],
                )
                slices.append(made)
                by_place[event["pid"], event["tid"], float(event["ts"])] = made
            case "i":
                marks.append(
                    Mark(
                        process=processes[event["pid"]],
                        track=event["cat"],
                        name=event["name"],
                        at_us=round(float(event["ts"]) + origin_us, 3),
                        args=event["args"],
                    )
                )
            case "s" | "f":
                ends.setdefault(event["id"], []).append(event)
    arrows = []
    for both in ends.values():
        sent, received = (by_place[e["pid"], e["tid"], float(e["ts"])] for e in both)
        arrows.append(Arrow(name=both[0]["name"], sent=sent, received=received))
    names = {one.name for one in fields(TrackSource)}
    return Timeline(
        **{name: other[name] for name in HEAD},
        sources=tuple(
            TrackSource(**{name: value for name, value in source.items() if name in names})
            for source in other["sources"]
        ),
        slices=tuple(slices),
        arrows=tuple(arrows),
        marks=tuple(marks),
    )
