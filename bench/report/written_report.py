"""Writes tables and plots from the result files: into the README and the pages of `PAGES`, between markers, and as SVG files.

`<!-- bench:NAME:begin -->` and `<!-- bench:NAME:end -->` enclose the block NAME of `BLOCKS`; `<!-- bench:begin -->` in the README
encloses `SUMMARY`. A block whose suite has not been run says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from bench.report import (
    plots,
    plots_of_scheduling,
    tables,
    tables_emulated,
    tables_gpu,
    tables_of_drafters,
    tables_of_load,
    tables_plan,
    tables_simulated,
    verifier_tables,
    where,
)
from bench.report import rows as results
from bench.report.captions import Rows

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = tuple(
    DOCS / f"{name}.md"
    for name in (
        "benchmarks",
        "cluster",
        "diffusion",
        "drafters",
        "exactness",
        "feedback",
        "gpu",
        "scale",
        "scheduling",
        "simulation",
        "sorted",
        "verifiers",
        "verifiers-appendix",
    )
)
PLOTS = DOCS / "plots"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

Block = tuple[str, Callable[[Rows], str]]
"""A suite, and how its rows are told."""

BLOCKS: dict[str, Block] = {
    "equality": ("equality", tables.equality),
    "precision": ("precision", tables.precision),
    "single": ("single", tables.single),
    "single-details": ("single", tables.single_details),
    "delay": ("delay", tables.delay),
    "netns": ("netns", tables.delay),
    "load": ("load", tables_of_load.load),
    "apply": ("apply", tables_of_load.applied),
    "costs": ("costs", tables_of_load.costs),
    "messages": ("messages", tables_of_load.messages),
    "feedback": ("feedback", tables_of_load.feedback),
    "reliability": ("reliability", tables_of_load.reliability),
    "drafters": ("drafters", tables_of_drafters.drafters),
    "drafters-by-category": ("drafters", tables_of_drafters.drafters_by_category),
    "drafters-speed-up": ("drafters", tables_of_drafters.speed_up_by_category),
    "sorted": ("sorted", tables_of_drafters.exits),
    "blocks": ("blocks", tables_of_drafters.blocks),
    "gpu": ("gpu", tables_gpu.passes),
    "gpu-served": ("gpu_served", tables_gpu.served),
    "emulated": ("emulated", tables_emulated.emulated),
    "emulated-verifiers": ("emulated_verifiers", tables_emulated.verifiers),
    "predicted": ("predicted", tables_simulated.predicted),
    "predicted-models": ("predicted_models", tables_simulated.predicted_models),
    "plan-measured": ("plan", tables_plan.measured),
    "plan-closed-form": ("plan", tables_plan.closed_form),
    "plan-latency": ("plan", tables_plan.latency),
    "plan-scale": ("plan", tables_plan.scale),
    "grid": ("grid", tables_simulated.grid),
    "grid-parts": ("grid", tables_simulated.grid_parts),
    "selectors": ("selectors", tables_simulated.selectors),
    **{f"{suite}-time": (suite, where.where) for suite in ("single", "delay", "netns", "load")},
    **{name: ("verifiers", tell) for name, tell in verifier_tables.BLOCKS.items()},
}
"""By the name in the markers."""

SUMMARY: Block = ("single", tables.summary)
"""That of the README."""

DRAWN: dict[str, tuple[str, Callable[[Rows], str | None]]] = {
    "single": ("single", plots.efficiency),
    "delay": ("delay", plots.delay),
    "netns": ("netns", plots.delay),
    "load": ("load", plots.load),
    "reliability": ("reliability", plots.reliability),
    **plots_of_scheduling.DRAWN,
}
"""Plots by the name of their file."""

NOT_RUN = "*Not measured yet: `python -m bench {suite}`.*"


def write() -> None:
    """Replaces what stands between the markers, and the plots."""
    PLOTS.mkdir(exist_ok=True)
    for name, (suite, draw) in DRAWN.items():
        picture = draw(rows_of(suite))
        if picture is not None:
            (PLOTS / f"{name}.svg").write_text(picture, encoding="utf-8")
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    README.write_text(f"{before}{BEGIN}\n{summary()}\n{END}{after}", encoding="utf-8")
    blocks = {name: block(name) for name in BLOCKS}
    for page in PAGES:
        if page.exists():
            page.write_text(filled(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")


def show() -> None:
    """Prints the tables of `--quick` runs."""
    for name in BLOCKS:
        print(f"## {name}\n\n{block(name, is_quick=True)}\n")


def summary() -> str:
    """The README's table and its plot; nothing if the suite was not run."""
    suite, tell = SUMMARY
    text = tell(rows_of(suite))
    return f"{text}\n\n![{suite}]({PLOTS.relative_to(ROOT)}/{suite}.svg)" if text else ""


def block(name: str, *, is_quick: bool = False) -> str:
    """One block's text."""
    suite, tell = BLOCKS[name]
    return tell(rows_of(suite, is_quick=is_quick)) or NOT_RUN.format(suite=suite)


def rows_of(suite: str, *, is_quick: bool = False) -> Rows:
    """The rows of a suite, without those of an older form, of before it had parts."""
    rows = results.read(suite, is_quick=is_quick)
    return [row for row in rows if suite != "single" or "part" in row]


def filled(page: str, blocks: dict[str, str]) -> str:
    """A page with the text between each pair of markers replaced.

    Raises:
        ValueError: A begin has no end, or names no block.
    """
    for name in re.findall(r"<!-- bench:([a-z-]+):begin -->", page):
        begin, end = f"<!-- bench:{name}:begin -->", f"<!-- bench:{name}:end -->"
        if name not in blocks:
            raise ValueError(f"{begin} names no block; there are {', '.join(sorted(blocks))}")
        before, rest = page.split(begin, 1)
        if end not in rest:
            raise ValueError(f"{begin} has no {end}")
        page = f"{before}{begin}\n{blocks[name]}\n{end}{rest.split(end, 1)[1]}"
    return page
