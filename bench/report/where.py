"""Where the time of a run goes, read from its timeline: what a result row says of it, and the table of all rows that do.

A run's speed over plain decoding is that of its passes alone, had none waited for another, times the share of the time in which a
pass ran. What both fall short of the ideal by tells whether passes commit too little or begin too late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.report.captions import Rows, table
from outrider.client.timeline.spending import ActorTime
from outrider.client.timeline.summary import TimelineSummary, summarise
from outrider.client.timeline.timeline_model import Timeline

IDLE = "no session"
"""At a target: nobody asked for anything, which is nobody's loss. At a drafter: none was attached, mostly because they rest."""

REST = "sent to rest"

TARGET_CAUSES = ("verify", "prefill", "waits for candidates", "lets a tree grow", "between passes")
DRAFTER_CAUSES = ("draft", "catch up", "nothing left to draft", "out of credits", REST)
"""Columns; what remains is told together."""


def told(timeline: Timeline, *, unit_s: float) -> dict[str, Any]:
    """What a result row says of a run.

    Args:
        timeline: Of the whole service while the run went on.
        unit_s: Seconds of a plain pass, for the speed of passes alone; 0 if unknown.
    """
    summary = summarise(timeline)
    rounds, fates = summary.rounds, summary.fates
    verify_us = sum(
        one.spent_us.get("verify", 0.0) for one in summary.actors if one.role == "target"
    )
    # The first token of each request comes from the pass that ends its prompt.
    committed = rounds.committed - len(summary.requests)
    came, verified = max(fates.proposed, 1), max(fates.verified, 1)
    return {
        "target": shares(_of_role(summary, "target")),
        "drafter": _merged(shares(_of_role(summary, "drafter"), idle=()), IDLE, into=REST),
        "passes_alone": committed * 1e6 * unit_s / verify_us if verify_us else 0.0,
        "rounds": rounds.rounds,
        "with_candidates": rounds.with_candidates / max(rounds.rounds, 1),
        "hit_rate": rounds.hit_rate,
        "stale": fates.stale / came,
        "verified": fates.verified / came,
        "accepted_of_verified": fates.accepted / verified,
        "foreseen": fates.foreseen / came,
        "never_chosen": fates.never_chosen / came,
        "message_ms": {
            f"{stream.track}: {stream.what}": 1e-3 * stream.median_us for stream in summary.streams
        },
        "records_lost": summary.num_lost,
    }


def _of_role(summary: TimelineSummary, role: str) -> list[ActorTime]:
    return [actor for actor in summary.actors if actor.role == role]


def _merged(spent: dict[str, float], cause: str, *, into: str) -> dict[str, float]:
    """The shares with one cause counted as another."""
    found = {name: share for name, share in spent.items() if name != cause}
    if cause in spent:
        found[into] = found.get(into, 0.0) + spent[cause]
    return found


def shares(actors: Iterable[ActorTime], *, idle: Sequence[str] = (IDLE,)) -> dict[str, float]:
    """Shares of the actors' time by cause, without that of the `idle` ones; together 1."""
    spent: dict[str, float] = {}
    for actor in actors:
        for cause, us in actor.spent_us.items():
            if cause not in idle:
                spent[cause] = spent.get(cause, 0.0) + us
    whole = sum(spent.values())
    return {cause: us / whole for cause, us in spent.items() if us > 0.0}


def where(rows: Rows) -> str:
    """The table of all rows that tell, a line for each way of decoding."""
    lines = [_line(row, way, row["time"][way]) for row in rows for way in row.get("time", {})]
    if not lines:
        return ""
    head = ["", "way", "target: verify", "prefill", "waits", "lets grow", "between", "rest"]
    head += ["drafter: draft", "catch up", "nothing left", "out of credits", "resting", "rest"]
    head += ["hit rate", "stale", "accepted of verified", "passes alone"]
    return table(head, lines)


def _line(row: dict[str, Any], way: str, time: dict[str, Any]) -> list[str]:
    return [
        _place(row),
        way,
        *_cells(time["target"], TARGET_CAUSES),
        *_cells(time["drafter"], DRAFTER_CAUSES),
        f"{time['hit_rate']:.0%}",
        f"{time['stale']:.0%}",
        f"{time['accepted_of_verified']:.0%}",
        f"{time['passes_alone']:.2f}" if time["passes_alone"] else "-",
    ]


def _cells(spent: dict[str, float], causes: Sequence[str]) -> list[str]:
    rest = sum(share for cause, share in spent.items() if cause not in causes)
    return [f"{share:.0%}" for share in (*(spent.get(cause, 0.0) for cause in causes), rest)]


def _place(row: dict[str, Any]) -> str:
    """What tells a row from its others, short."""
    if "delay_ms" in row:
        what = f"{row['added_ms']:.3g} ms away"
    elif "concurrency" in row:
        what = f"{row['concurrency']} at once, {row['lengths']} lengths"
    else:
        what = str(row["target"])
    return f"{what}, T {row['temperature']:g}"
