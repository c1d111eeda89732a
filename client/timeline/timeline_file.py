"""Timelines on the disk."""

from __future__ import annotations

import json
from pathlib import Path

from outrider.client.timeline import perfetto
from outrider.client.timeline.perfetto_reader import NotATimeline, read
from outrider.client.timeline.timeline_model import Timeline


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
    except ValueError as error:
        raise NotATimeline(f"it is not JSON: {error}") from error
    return read(content)
