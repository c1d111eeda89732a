"""What passes took in a run, read from the trace. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.actors.trace import TraceRecord

VERIFY, DRAFT = "verify", "draft"
"""Names of the records of a target pass and of a draft pass."""

TARGET_TRACK = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Seconds of passes, the work around the model included. 0 where there were none."""

    plain_s: float
    """Mean of target passes over one token."""

    tree_s: float
    """Mean of target passes with candidates."""

    tree_nodes: float
    """Mean candidates of those."""

    draft_s: float
    """Median of draft passes."""

    num_drafts: int
    """Draft passes."""

    busy: float
    """Share of the time, from the first target pass to the last, in which one ran."""


def passes(
    records: Iterable[TraceRecord], *, drafter: str, start_us: float, end_us: float
) -> Passes:
    """The passes of a stretch of time.

    Args:
        records: A trace.
        drafter: Track of the drafter.
        start_us: From when, in microseconds since the epoch.
        end_us: Until when.
    """
    within = [
        record
        for record in records
        if record.start_us >= start_us and record.start_us + record.duration_us <= end_us
    ]
    verify = [r for r in within if r.track == TARGET_TRACK and r.name == VERIFY]
    plain = [r for r in verify if r.args.get("rows") == 1]
    trees = [r for r in verify if int(r.args.get("nodes", 0)) > 0]
    drafts = [r for r in within if r.track == drafter and r.name == DRAFT]
    return Passes(
        plain_s=_mean_s(plain),
        tree_s=_mean_s(trees),
        tree_nodes=statistics.fmean(float(r.args["nodes"]) for r in trees) if trees else 0.0,
        draft_s=1e-6 * statistics.median(r.duration_us for r in drafts) if drafts else 0.0,
        num_drafts=len(drafts),
        busy=_busy([r for r in within if r.track == TARGET_TRACK]),
    )


def _mean_s(records: Sequence[TraceRecord]) -> float:
    return 1e-6 * statistics.fmean(r.duration_us for r in records) if records else 0.0


def _busy(records: Sequence[TraceRecord]) -> float:
    if not records:
        return 0.0
    ended = max(r.start_us + r.duration_us for r in records)
    return sum(r.duration_us for r in records) / (ended - min(r.start_us for r in records))
