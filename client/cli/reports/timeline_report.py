"""What a timeline says: sentences for people, figures for programs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from outrider.client.cli.shared.printing import print_json, printable
from outrider.client.timeline.summary import TimelineSummary, summarise
from outrider.client.timeline.timeline_model import Timeline
from outrider.client.timeline.words import lines


def tell(timeline: Timeline, *, as_json: bool, path: Path | None = None) -> None:
    """Prints what a timeline says."""
    found = summarise(timeline)
    if as_json:
        print_json({**as_dict(found), "file": str(path) if path is not None else None})
        return
    console = Console(highlight=False, emoji=False, soft_wrap=True)
    for line in lines(found):
        console.print(printable(line), markup=False)


def as_dict(found: TimelineSummary) -> dict[str, object]:
    """A summary for programs: its fields, and the figures that follow from them."""
    shown: dict[str, object] = asdict(found)
    shown["actors"] = [{**asdict(actor), "busy": actor.busy} for actor in found.actors]
    shown["rounds"] = {**asdict(found.rounds), "hit_rate": found.rounds.hit_rate}
    shown["fates"] = {
        **asdict(found.fates),
        "verified": found.fates.verified,
        "held": found.fates.held,
    }
    return shown
