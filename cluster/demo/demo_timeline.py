"""The timeline that the demonstration leaves: what the actors did, below the texts as the client saw them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from outrider.client.timeline.timeline_file import save
from outrider.client.timeline.timeline_model import REQUESTS, Slice, Timeline
from outrider.cluster.demo.demo_report import Pair
from outrider.cluster.start.commands import CommandFailed

TEXTS = "texts"
"""Name of the timeline's track of whole texts."""

TRACE_S = 600.0
"""The timeline ends after this time even if the texts do not."""


def with_texts(timeline: Timeline, pairs: Sequence[Pair]) -> Timeline:
    """The timeline with the texts, as the client saw them, as a track above the requests.

    The client's times are of the wall clock, which is the coordinator's: both run on this machine.
    """
    texts = tuple(
        Slice(
            process=REQUESTS,
            track=TEXTS,
            name=f"{way} {pair.category}",
            start_us=round(run.start_us - timeline.start_unix_us, 3),
            duration_us=round(run.duration_us, 3),
            args={
                "temperature": pair.temperature,
                "seed": pair.seed,
                "tokens": len(run.tokens),
                "tokens_per_pass": round(run.completion.speculation.mean_tokens_per_pass, 3),
            },
        )
        for pair in pairs
        for way, run in (("plain", pair.plain), ("speculative", pair.speculative))
    )
    return replace(timeline, slices=texts + timeline.slices)


def write_trace(path: Path, timeline: Timeline) -> None:
    """Writes the timeline.

    Raises:
        CommandFailed: The file cannot be written.
    """
    try:
        save(timeline, path)
    except OSError as error:
        raise CommandFailed(f"--trace {path} cannot be written: {error}") from error
