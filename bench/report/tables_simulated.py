"""The grid in virtual time, and virtual time beside measurement, as Markdown tables. Pure: rows in, text out; no rows, no text."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from bench.report.captions import Rows, table
from bench.report.plots_of_scheduling import LEAST, MEDIAN, OVER

ROLES = ("target", "drafter", "coordinator")
"""What is simulated, as measured rows call it."""

WAYS = ("plain", "speculative")
"""Of decoding, as measured rows call them."""

MODELS_WITHIN = 0.2
"""Greatest error that is wanted of predictions of real models."""

WITHIN = 0.1
"""Greatest error of a prediction that is called right."""

PLAIN = 0.98
"""Least of any window, over plain decoding, that is wanted."""

LOCKSTEP = 1.3
"""Least over lock-step that is wanted at a round trip of `HALF`."""

HALF = 0.5
"""Of a pass."""


def predicted_models(rows: Rows) -> str:
    """Speed-ups of real models, measured and in virtual time."""
    if not rows:
        return ""
    head = "target, ms|temperature|law that is like it|measured|predicted|error|tokens a pass, measured / predicted"
    lines = [
        [
            row["part"],
            f"{row['temperature']:g}",
            row["law"],
            f"{row['measured']:.2f}",
            f"{row['predicted']:.2f}",
            f"{100 * row['error']:+.0f} %",
            " / ".join(
                f"{row['tokens_per_pass'][which]:.1f}" for which in ("measured", "predicted")
            ),
        ]
        for row in rows
    ]
    errors = [abs(row["error"]) for row in rows]
    near = sum(error <= MODELS_WITHIN for error in errors)
    measured = dict.fromkeys(
        f"{row['of']['cpu']}, commit {row['of']['commit']}, {row['of']['date']}" for row in rows
    )
    return (
        f"{table(head.split('|'), lines)}\n\nSpeed-ups over plain decoding, from the first token on. **{near} of {len(rows)} within {100 * MODELS_WITHIN:.0f} %**, "
        f"{100 * statistics.median(errors):.0f} % in the median. Measured on {'; '.join(measured)}."
    )


def grid(rows: Rows) -> str:
    """What is wanted of the scheduler and what was reached."""
    if not rows:
        return ""
    lines = [[*line, "yes" if holds else "**no**"] for *line, holds in _judged(rows)]
    fast = [row["speed_up"] for row in rows if row["window"] is None]
    commits = sorted({row["machine"]["commit"] for row in rows})
    unequal = sum(bool(row["broken"]) for row in rows)
    caption = (
        f"Virtual time, {len(rows)} points of the grid ({_counts(rows)} requests); commits {', '.join(commits)}. "
        + (
            f"{len(fast)} points had no 400 rounds, and {min(fast):.2f} times plain decoding at least. "
            if fast
            else ""
        )
        + (
            "Every output was that of plain decoding."
            if not unequal
            else f"**{unequal} points have outputs that differ.**"
        )
    )
    return "\n\n".join([table(["wanted", "reached", "met"], lines), caption])


def _counts(rows: Rows) -> str:
    counts = {level: 0 for level in sorted({row["sessions"] for row in rows})}
    for row in rows:
        counts[row["sessions"]] += 1
    return ", ".join(f"{count} with {level}" for level, count in counts.items())


def _judged(rows: Rows) -> Iterator[tuple[str, str, bool]]:
    etas = [row["eta"] for row in rows]
    median, least = statistics.median(etas), min(etas)
    yield f"η ≥ {MEDIAN:g} in the median", f"{median:.2f}", median >= MEDIAN
    yield (
        f"η ≥ {LEAST:g} at every point",
        f"{least:.2f} at least, below in {_part(etas, LEAST)}",
        least >= LEAST,
    )
    windows = [row["window"] for row in rows if row["window"] is not None]
    if windows:
        yield (
            f"no 200 rounds after the first 200 below {PLAIN:g} × plain",
            f"{min(windows):.3f} at least, below in {_part(windows, PLAIN)}",
            min(windows) >= PLAIN,
        )
    halves = [row["over_lockstep"] for row in rows if row["round_trip"] == HALF]
    if halves:
        yield (
            f"≥ {LOCKSTEP:g} × lock-step at a round trip of {HALF:g} passes",
            f"{statistics.median(halves):.2f} in the median, {min(halves):.2f} at least, below in {_part(halves, LOCKSTEP)}",
            min(halves) >= LOCKSTEP,
        )
    over = [row["over_lockstep"] for row in rows]
    yield (
        "never below lock-step",
        f"{statistics.median(over):.2f} in the median, {min(over):.2f} at least, below in {_part(over, 1.0)}",
        min(over) >= 1.0,
    )


def _part(values: list[float], wanted: float) -> str:
    return f"{sum(value < wanted for value in values)} of {len(values)}"


def grid_parts(rows: Rows) -> str:
    """The same figures for each value of each dimension."""
    if not rows:
        return ""
    head = ["points with", "number", "η, median", "least", f"windows below {PLAIN:g} × plain"]
    head += ["worst window", "over lock-step, median", "least"]
    lines = [
        _part_line(f"{label}: {value}", [row for row in rows if row[key] == value])
        for key, label in OVER.values()
        for value in sorted({row[key] for row in rows})
    ]
    return table(head, lines)


def _part_line(name: str, rows: Rows) -> list[str]:
    etas = [row["eta"] for row in rows]
    windows = [row["window"] for row in rows if row["window"] is not None]
    over = [row["over_lockstep"] for row in rows]
    return [
        name,
        str(len(rows)),
        f"{statistics.median(etas):.2f}",
        f"{min(etas):.2f}",
        _part(windows, PLAIN) if windows else "-",
        f"{min(windows):.3f}" if windows else "-",
        f"{statistics.median(over):.2f}",
        f"{min(over):.2f}",
    ]


def predicted(rows: Rows) -> str:
    """Measured and predicted throughput, and what it is made of."""
    if not rows:
        return ""
    head = ["target / drafter", "drafters", "at once", "plain: measured / predicted", "error"]
    head += ["speculative: measured / predicted", "error", "tokens a round"]
    head += [f"µs a session-round, speculative, {role}" for role in ROLES] + ["two at once"]
    order = ("profile", "law", "drafting", "level")
    ordered = sorted(rows, key=lambda row: tuple(row[key] for key in order))
    lines = [
        [
            f"{row['profile']} / {row['draft_profile']}, {row['law']}",
            "always" if row["drafting"] == "always" else "as shipped",
            str(row["level"]),
            *(cell for way in WAYS for cell in _ways(row[way])),
            _both(row["speculative"]["tokens_per_round"], "{:.1f}"),
            *(_both(row["speculative"]["cpu_us"][role], "{:,.0f}") for role in ROLES),
            f"{row['measured']['two_at_once']:.2f}",
        ]
        for row in ordered
    ]
    errors = [abs(row[way]["error"]) for row in rows for way in WAYS]
    within = sum(error <= WITHIN for error in errors)
    unequal = [row["different"] for row in rows if row["different"]]
    caption = (
        f"Units are those of [the emulated table](benchmarks.md#emulated-devices). **{within} of {len(errors)} points within "
        f"{100 * WITHIN:.0f} %**, error {100 * statistics.median(errors):.0f} % in the median, {100 * max(errors):.0f} % at most. Two at once: "
        "how many times longer two cores took for the same work each than one alone, when the row was measured. Measured "
        f"at {_commits([row['measured'] for row in rows])}; predicted at "
        f"{_commits([{**row['machine'], 'date': row['date']} for row in rows])}; prices of {'; '.join(sorted({row['prices'] for row in rows}))}."
        + (f" **Outputs differ: {'; '.join(unequal)}.**" if unequal else "")
    )
    return "\n\n".join([table(head, lines), caption])


def _ways(way: dict[str, Any]) -> list[str]:
    bold = "" if abs(way["error"]) <= WITHIN else "**"
    return [
        f"{way['measured']:.2f} / {way['predicted']:.2f}",
        f"{bold}{100 * way['error']:+.0f} %{bold}",
    ]


def _both(values: dict[str, float], form: str) -> str:
    return f"{form.format(values['measured'])} / {form.format(values['predicted'])}"


def _commits(made: Rows) -> str:
    return "; ".join(sorted({f"commit {one['commit']}, {one['date']}" for one in made}))


def selectors(rows: Rows) -> str:
    """Ways of choosing drafters, beside each other."""
    if not rows:
        return ""
    head = "two drafters|who drafts|over plain decoding|tokens a pass|drafter's device, us a token|bytes a token"
    lines = [
        [
            row["part"],
            f"`{row['way']}`" if row["way"] != "all" else "all",
            f"{row['speed_up']:.2f}",
            f"{row['tokens_per_pass']:.1f}",
            f"{row['draft_us_per_token']:.0f}",
            f"{row['bytes_per_token']:.0f}",
        ]
        for row in rows
    ]
    unequal = sum(not row["equal"] for row in rows)
    outputs = f"**{unequal} outputs differ**" if unequal else "Every output was plain decoding's"
    commits = ", ".join(sorted({row["machine"]["commit"] for row in rows}))
    return f"{table(head.split('|'), lines)}\n\nVirtual time, commit {commits}. {outputs}."
