"""What passes took in a run, read from its timeline."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from outrider.client import Client
from outrider.client.messages.trace_request import MAX_TRACE_S
from outrider.client.timeline.timeline_model import BUSY, DRAFTING, WORK, Slice, Timeline

VERIFY, DRAFT = "verify", "draft"
"""Names of the slices of a target pass and of a draft pass."""


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


Result = TypeVar("Result")


def traced(client: Client, run: Callable[[], Result]) -> tuple[Result, Timeline]:
    """A run, and what every actor did in it. It is one more than those that are timed, because recording has its price."""
    with client.start_trace(seconds=MAX_TRACE_S) as trace:
        trace.wait_started()
        result = run()
    return result, trace.result()


def passes(timeline: Timeline, *, drafter: str) -> Passes:
    """The passes of a timeline.

    Args:
        timeline: What was recorded.
        drafter: The drafter's name.
    """
    target = [one for one in timeline.slices if one.track == WORK and one.name in BUSY]
    verify = [one for one in target if one.name == VERIFY]
    plain = [one for one in verify if one.args["rows"] == 1]
    trees = [one for one in verify if one.args["nodes"] > 0]
    drafts = [one for one in timeline.of(drafter, DRAFTING) if one.name == DRAFT]
    return Passes(
        plain_s=_mean_s(plain),
        tree_s=_mean_s(trees),
        tree_nodes=statistics.fmean(one.args["nodes"] for one in trees) if trees else 0.0,
        draft_s=1e-6 * statistics.median(one.duration_us for one in drafts) if drafts else 0.0,
        num_drafts=len(drafts),
        busy=_busy(target),
    )


def _mean_s(slices: Sequence[Slice]) -> float:
    return 1e-6 * statistics.fmean(one.duration_us for one in slices) if slices else 0.0


def _busy(slices: Sequence[Slice]) -> float:
    if not slices:
        return 0.0
    ended = max(one.end_us for one in slices)
    return sum(one.duration_us for one in slices) / (ended - min(one.start_us for one in slices))
