"""What `outrider bench` was asked and what it measured, as a table and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from rich.console import Console
from rich.table import Table

from outrider.client.cli.shared.printing import emulation_note
from outrider.client.measuring.figures import (
    Comparison,
    Figures,
    RequestSample,
    compare,
    figures,
)
from outrider.client.measuring.measuring_prompts import Prompt
from outrider.client.messages.request_options import (
    SAME_TEXT,
    SamplingOptions,
    SpeculationOptions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """What to measure."""

    prompts: tuple[Prompt, ...]
    sampling: SamplingOptions
    speculation: SpeculationOptions = field(default_factory=SpeculationOptions)
    seeds: tuple[int, ...] = (0,)
    """Each prompt runs with each."""

    runs: int = 1
    concurrency: int = 1
    model: str = ""
    """The target model; empty: the service's first."""

    compare_plain: bool = False
    """The same is decoded with speculation off, too."""

    @property
    def must_equal(self) -> bool:
        """The verifier gives plain decoding's text; at temperature 0 all do."""
        return self.sampling.temperature == 0 or self.speculation.verifier in SAME_TEXT


@dataclass(slots=True, kw_only=True)
class Phase:
    """All requests of one way of decoding."""

    samples: list[RequestSample] = field(default_factory=list)
    wall_s: float = 0.0
    """Seconds that all of them took together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """What was measured."""

    figures: Figures
    plain: Figures | None
    comparison: Comparison | None
    speed_up_by_run: tuple[float, ...]
    emulated: str = ""
    """As `ModelInfo.emulated`."""

    @property
    def speed_up_median(self) -> float | None:
        """The median over the runs."""
        return median(self.speed_up_by_run) if self.speed_up_by_run else None


def report_of(
    speculative: Phase,
    plain: Phase | None,
    *,
    speed_up_by_run: Sequence[float] = (),
    emulated: str,
    must_equal: bool = True,
) -> BenchReport:
    """The figures of one way of decoding, and beside those of plain decoding of the same prompts and seeds, if it is given.

    Args:
        speculative: In the order of `plain`.
        plain: The same requests with speculation off.
        speed_up_by_run: Of each run, where there were several.
        emulated: As `ModelInfo.emulated`.
        must_equal: As `Comparison.must_equal`.
    """
    comparison = None
    if plain is not None:
        comparison = compare(
            plain.samples,
            speculative.samples,
            plain_wall_s=plain.wall_s,
            speculative_wall_s=speculative.wall_s,
            must_equal=must_equal,
        )
        speed_up_by_run = speed_up_by_run or (comparison.speed_up,)
    return BenchReport(
        figures=figures(speculative.samples, wall_s=speculative.wall_s),
        plain=figures(plain.samples, wall_s=plain.wall_s) if plain is not None else None,
        comparison=comparison,
        speed_up_by_run=tuple(speed_up_by_run),
        emulated=emulated,
    )


def report_as_dict(plan: BenchPlan, report: BenchReport) -> dict[str, object]:
    """What `--json` shows."""
    comparison = None
    if report.comparison is not None:
        comparison = {
            **asdict(report.comparison),
            "unexplained": report.comparison.unexplained,
            "speed_up_by_run": list(report.speed_up_by_run),
            "speed_up_median": report.speed_up_median,
        }
    return {
        "plan": {
            "prompts": len(plan.prompts),
            "categories": sorted({prompt.category for prompt in plan.prompts}),
            "seeds": list(plan.seeds),
            "runs": plan.runs,
            "concurrency": plan.concurrency,
            "max_tokens": plan.sampling.max_tokens,
            "temperature": plan.sampling.temperature,
        },
        "emulated": report.emulated,
        "figures": asdict(report.figures),
        "plain": asdict(report.plain) if report.plain is not None else None,
        "comparison": comparison,
    }


def print_report(plan: BenchPlan, report: BenchReport) -> None:
    """The figures as a table, and what the comparison found."""
    console = Console(highlight=False, markup=False, emoji=False)
    repeats = ((len(plan.seeds), "seeds"), (plan.runs, "runs"))
    title = [f"{len(plan.prompts)} prompts", *(f"{n} {name}" for n, name in repeats if n > 1)]
    title += [f"concurrency {plan.concurrency}", f"temperature {plan.sampling.temperature:g}"]
    if report.emulated:
        title.append(emulation_note(report.emulated))
    table = Table(title=", ".join(title))
    table.add_column("")
    columns = [report.figures] if report.plain is None else [report.plain, report.figures]
    for name in ("measured",) if report.plain is None else ("plain", "speculative"):
        table.add_column(name, justify="right")
    rows = [
        ("tokens", [f"{column.tokens}" for column in columns]),
        ("tokens/s", [f"{column.tokens_per_s:.1f}" for column in columns]),
        (
            "first token p50 / p99, ms",
            [_ms(c.first_token_p50_s, c.first_token_p99_s) for c in columns],
        ),
        ("time per token p50 / p99, ms", [_ms(c.token_p50_s, c.token_p99_s) for c in columns]),
        ("tokens a target pass", [f"{column.mean_tokens_per_pass:.2f}" for column in columns]),
        ("passes with candidates", [_with_candidates(column) for column in columns]),
        ("candidates accepted", [f"{column.acceptance:.0%}" for column in columns]),
        ("accepted by depth", [_by_depth(column.acceptance_by_depth) for column in columns]),
        ("wire bytes a token", [f"{column.wire_bytes_per_token:.0f}" for column in columns]),
    ]
    for label, cells in rows:
        table.add_row(label, *cells)
    console.print(table)
    if report.comparison is not None:
        _print_comparison(console, report.comparison, report)


def _print_comparison(console: Console, comparison: Comparison, report: BenchReport) -> None:
    if comparison.must_equal or not comparison.differences:
        _print_differences(console, comparison)
    else:
        console.print(
            "outputs differ: this verifier's are other draws than those of plain decoding"
        )
    runs = report.speed_up_by_run
    console.print(
        f"speed-up {report.speed_up_median or 0.0:.2f}"
        + (f" (median of {len(runs)} runs, {min(runs):.2f} to {max(runs):.2f})" if runs[1:] else "")
    )
    for category, ratio in comparison.speed_up_by_category.items():
        console.print(f"  {category}: {ratio:.2f}")


def _print_differences(console: Console, comparison: Comparison) -> None:
    explained = len(comparison.differences) - comparison.unexplained
    console.print(
        f"{comparison.equal} of {comparison.pairs} outputs equal"
        + (f", {explained} differ by a near tie" if explained else "")
        + (f", {comparison.unexplained} differ" if comparison.unexplained else "")
    )
    for difference in comparison.differences:
        console.print(
            f"  prompt {difference.prompt}, seed {difference.seed}: token {difference.position} differs"
            + (" (near tie)" if difference.near_tie else "")
        )


def _ms(one_s: float | None, other_s: float | None) -> str:
    return " / ".join(
        "-" if time_s is None else f"{time_s * 1e3:.1f}" for time_s in (one_s, other_s)
    )


def _with_candidates(column: Figures) -> str:
    passes = column.rounds + column.plain_passes
    return f"{column.rounds / passes:.0%}" if passes else "-"


def _by_depth(rates: tuple[float, ...]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates) or "-"
