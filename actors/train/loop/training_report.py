"""What a training run measured, how it is shown, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from outrider.actors.train.loop.budget import EVALUATION, WRITING, StepDecision
from outrider.actors.train.loop.evaluate import Agreement

UNITS = {WRITING: "rows", EVALUATION: "rows a source"}
"""What is counted, where it is not steps."""


@dataclass(frozen=True)
class TrainReport:
    """What was trained.

    Attributes:
        parameters: number of parameters of each model, tied weights once.
        losses: held-out cross-entropy of the target by source, nats per token; `long` is all
            sources in rows of 1024 tokens.
        agreements: by draft, then by source; `own writing` is the target's continuations of
            held-out text.
        parts: how much of each part of the work was done: steps, or rows that the target wrote or
            that were measured of each source.
        cut: a sentence for each part that the bound on the time made shorter than the recipe's.
    """

    parameters: dict[str, int]
    losses: dict[str, float]
    agreements: dict[str, dict[str, Agreement]]
    parts: dict[str, StepDecision] = field(default_factory=dict)
    cut: tuple[str, ...] = ()


def headings(report: TrainReport) -> list[str]:
    """Column titles: the target's loss, then three rates for each draft."""
    rates = [f"{name}: {rate}" for name in report.agreements for rate in ("first", "four", "T=1")]
    return ["source", "target loss", *rates]


def lines(report: TrainReport) -> list[list[str]]:
    """One line a source: nats per token, then the shares of `Agreement` in percent."""
    result = []
    sources = list(report.losses)
    for agreements in report.agreements.values():
        sources += [source for source in agreements if source not in sources]
    for source in sources:
        line = [source, f"{report.losses[source]:.2f}" if source in report.losses else ""]
        for agreements in report.agreements.values():
            found = agreements.get(source)
            rates = (found.first, found.among_four, found.overlap) if found else ()
            line += [f"{100 * rate:.0f} %" for rate in rates] or ["", "", ""]
        result.append(line)
    return result


def as_table(report: TrainReport) -> Table:
    """For a terminal."""
    table = Table(title="held-out text, teacher forced")
    for index, heading in enumerate(headings(report)):
        table.add_column(heading, justify="right" if index else "left")
    for line in lines(report):
        table.add_row(*line)
    return table


def expected(part: str, decision: StepDecision, seconds: float) -> str:
    """What was decided, as a line for the user."""
    unit = UNITS.get(part, "steps")
    minutes = seconds / 60
    return (
        f"{part}: {decision.count} of {decision.of} {unit}, about {minutes:.1f} minutes from here"
    )


def cut_sentences(parts: Mapping[str, StepDecision]) -> tuple[str, ...]:
    """A sentence for each part that is shorter than the recipe's."""
    return tuple(
        f"{part}: {decision.count} of {decision.of} {UNITS.get(part, 'steps')}, as "
        f"{decision.minutes:g} minutes allow; --minutes 0 --afresh for all"
        for part, decision in parts.items()
        if decision.count < decision.of
    )


def write_report(path: Path, report: TrainReport) -> None:
    """As JSON, with every digit."""
    path.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")


def progress_bar(console: Console) -> Progress:
    """A bar with a note beside each task; nothing where the console is no terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
    )
