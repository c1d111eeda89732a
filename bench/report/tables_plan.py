"""The planner as Markdown tables: its closed form, drafts by depth and quality, and sizes. Pure: rows in, text out; no rows, no text."""

from __future__ import annotations

import statistics
from typing import Any

from bench.report.captions import Rows, table

WITHIN = 0.15
"""Greatest error of an expected speed-up that is wanted."""


def measured(rows: Rows) -> str:
    """What plans say beside what was measured."""
    chosen = [row for row in rows if row["part"] == "measured"]
    if not chosen:
        return ""
    head, lines = ["configuration"], [[row["case"]] for row in chosen]
    said = []
    for way in ("plain", "speculative"):
        head += [f"{way}: planned", "measured", "error"]
        errors = [row[way]["error"] for row in chosen]
        for line, row, error in zip(lines, chosen, errors, strict=True):
            line += [f"{row[way]['planned']:,.0f}", f"{row[way]['measured']:,.0f}"]
            line.append(f"{100 * error:+.0f} %")
        said.append(f"{way} {_within([abs(error) for error in errors])}")
    caption = (
        f"Tokens a second on emulated devices; {'; '.join(said)}. Measured on {chosen[0]['of']['cpu']}, commit "
        f"{chosen[0]['of']['commit']}; planned at {_commits(chosen)}."
    )
    return "\n\n".join([table(head, lines), caption])


def _within(errors: list[float]) -> str:
    count = sum(error <= WITHIN for error in errors)
    return (
        f"{count} of {len(errors)} within {100 * WITHIN:.0f} %, {100 * statistics.median(errors):.0f} % in the median, "
        f"{100 * max(errors):.0f} % at most"
    )


def closed_form(rows: Rows) -> str:
    """What the closed form expects beside virtual time."""
    chosen = [row for row in rows if row["part"] == "closed form"]
    if not chosen:
        return ""
    lines = [
        [
            row["case"],
            f"{row['expected']:.2f}",
            f"{row['simulated']:.2f}",
            f"{100 * row['error']:+.0f} %",
        ]
        for row in chosen
    ]
    errors = [abs(row["error"]) for row in chosen]
    caption = f"Speed-ups over plain decoding; {_within(errors)}; {_commits(chosen)}."
    head = ["configuration", "closed form", "virtual time", "error"]
    return "\n\n".join([table(head, lines), caption])


def latency(rows: Rows) -> str:
    """Tokens a second by a draft's layers and how often its first candidate is right."""
    chosen = [row for row in rows if row["part"] == "latency"]
    if not chosen:
        return ""
    depths = sorted({row["layers"] for row in chosen}, reverse=True)
    by = {(row["layers"], row["agrees"]): row for row in chosen}
    head = ["first candidates right", "how"]
    head += [f"{layers} layers, {_draft_ms(chosen, layers):g} ms" for layers in depths]
    lines = []
    for agrees in sorted({row["agrees"] for row in chosen}):
        for mode, name in (("lockstep", "lock-step"), ("pipelined", "this service")):
            found = [by.get((layers, agrees)) for layers in depths]
            lines.append([f"{agrees} %", name, *(_rate(row, mode) for row in found)])
    plain = statistics.median(row["plain"] for row in chosen)
    caption = (
        "Tokens a second, and in brackets those of a pass, the target's own among them; a target of 60 ms, one request, trees of 16, in "
        f"virtual time. Plain decoding: {plain:.1f} tokens a second. {_commits(chosen)[0].upper()}{_commits(chosen)[1:]}."
    )
    return "\n\n".join([table(head, lines), caption])


def _draft_ms(rows: Rows, layers: int) -> float:
    return float(next(row["draft_ms"] for row in rows if row["layers"] == layers))


def _rate(row: dict[str, Any] | None, mode: str) -> str:
    return "-" if row is None else f"{row[mode]:.1f} ({row['tokens_per_pass'][mode]:.2f})"


def scale(rows: Rows) -> str:
    """A cell at several loads, and fleets of them."""
    chosen = [row for row in rows if row["part"] == "scale"]
    if not chosen:
        return ""
    sizes = list(chosen[0]["sizes"])
    most = sizes[-1]
    head = ["load", "cell, tokens/s", "× plain, same targets", "cells at a coordinator"]
    head += [f"{role}, share of a core" for role in ("target", "drafter", "coordinator")]
    head += [f"{int(gpus):,} GPUs" for gpus in sizes]
    head += [f"plain at {int(most):,}", "over plain", f"coordinators at {int(most):,}"]
    lines = [
        [
            row["case"],
            f"{row['cell_tokens_per_s']:,.0f}",
            f"{row['speed_up']:.2f}",
            str(row["cells_of_a_coordinator"]),
            *(f"{row[f'{role}_share']:.2f}" for role in ("target", "drafter", "coordinator")),
            *(_fleet(row["sizes"][gpus]) for gpus in sizes),
            _thousands(row["sizes"][most]["plain_tokens_per_s"]),
            f"{row['sizes'][most]['tokens_per_s'] / row['sizes'][most]['plain_tokens_per_s']:.2f}",
            f"{row['sizes'][most]['coordinators']:,}",
        ]
        for row in chosen
    ]
    told = "Tokens a second, every cell simulated; *in italics* those of the largest simulated fleet times the groups"
    return "\n\n".join([table(head, lines), f"{told}; {_commits(chosen)}."])


def _fleet(size: dict[str, Any]) -> str:
    rate = _thousands(size["tokens_per_s"])
    return rate if size["simulated"] == size["cells"] else f"*{rate}*"


def _thousands(tokens_per_s: float) -> str:
    if tokens_per_s >= 1e6:
        return f"{1e-6 * tokens_per_s:.2f} M"
    return f"{1e-3 * tokens_per_s:.1f} k"


def _commits(rows: Rows) -> str:
    return f"commit {', '.join(sorted({row['machine']['commit'] for row in rows}))}"
