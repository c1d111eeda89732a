"""How a batch goes, and what it amounted to."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from outrider.client.batch.baseline import Baseline
from outrider.client.batch.batch_run import Written
from outrider.client.batch.batch_summary import BatchTally
from outrider.client.batch.whole_batch import BatchReport, Watcher
from outrider.client.cli.shared.printing import (
    emulation_note,
    print_line,
    print_table,
    printable,
    table_of,
)

_TENTHS = 10
"""Lines of a whole batch, where there is no terminal."""

_MAX_NAMED = 5
"""Records that a line of the report names."""


class Bar(Watcher):
    """On stderr: a progress bar on a terminal, elsewhere a line for each tenth of the records, as for the log of a job."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[said]}"),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task: TaskID | None = None
        self._failed = 0
        self._tokens = 0
        self._total = 0
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Where nothing is shown, some versions of rich end it with an empty line.
        if not self._progress.disable:
            self._progress.stop()

    def begin(self, *, total: int, done: int) -> None:
        """Shows the bar."""
        self._total, self._done = total, done
        self._progress.start()
        self._task = self._progress.add_task("records", total=total, completed=done, said="")

    def wrote(self, written: Written) -> None:
        """Moves it."""
        assert self._task is not None
        self._failed += not written.is_ok
        self._tokens += written.tokens
        said = f"{self._tokens} tokens" + (f", {self._failed} failed" if self._failed else "")
        self._progress.update(self._task, advance=1, said=said)
        former, self._done = self._done, self._done + 1
        is_told = former * _TENTHS // self._total < self._done * _TENTHS // self._total
        if self._progress.disable and is_told:
            print(f"{self._done} of {self._total} records, {said}", file=sys.stderr, flush=True)


def print_report(report: BatchReport) -> None:
    """The summary as a table, and what the baseline found."""
    table = table_of(
        "category",
        "ok",
        "failed",
        "prompt tokens",
        "output tokens",
        "accepted",
        "tokens a pass",
        names=("category",),
    )
    for name, tally in report.summary.by_category.items():
        table.add_row(Text(printable(name)), *_cells(tally))
    if len(report.summary.by_category) > 1:
        table.add_row("all", *_cells(report.summary.total))
    print_table(table)
    total = report.summary.total
    if total.errors:
        causes = ", ".join(f"{count} {code}" for code, count in sorted(total.errors.items()))
        print_line(f"failed: {causes}")
    here = report.records - report.done_before
    line = (
        f"{here} of {report.records} records in {report.wall_s:.1f} s, {report.concurrency} at once"
    )
    if report.done_before:
        line += f"; {report.done_before} were done before"
    if report.tokens_per_s is not None:
        line += f"; {report.tokens_per_s:.1f} tokens/s"
    if report.emulated:
        line += f"; {emulation_note(report.emulated)}"
    print_line(line)
    if report.baseline is not None:
        _print_baseline(report.baseline)


def _print_baseline(baseline: Baseline) -> None:
    line = f"plain decoding of {baseline.records} of them: {baseline.equal} texts equal"
    for names, what in (
        (baseline.near_tie, "differ by a near tie"),
        (baseline.different, "differ"),
    ):
        if names:
            shown = ", ".join(map(repr, names[:_MAX_NAMED]))
            line += f", {len(names)} {what} ({shown}{', ...' if len(names) > _MAX_NAMED else ''})"
    print_line(line)
    print_line(
        f"speed-up {baseline.speed_up:.2f}: {baseline.tokens_per_s:.1f} over {baseline.plain_tokens_per_s:.1f} tokens/s"
    )
    if len(baseline.speed_up_by_category) > 1:
        for category, ratio in sorted(baseline.speed_up_by_category.items()):
            print_line(f"  {printable(category) or '(none)'}: {ratio:.2f}")


def _cells(tally: BatchTally) -> tuple[str, ...]:
    return (
        f"{tally.ok}",
        f"{tally.failed}",
        f"{tally.prompt_tokens}",
        f"{tally.completion_tokens}",
        f"{tally.acceptance:.0%}" if tally.acceptance is not None else "-",
        f"{tally.tokens_per_pass:.2f}" if tally.tokens_per_pass is not None else "-",
    )
