"""Result rows as plots. Pure: rows in, SVG out; None where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.report.svg import Axis, Series, plot

Rows = Sequence[dict[str, Any]]


def delay(rows: Rows) -> str | None:
    """Speed-up over the added delay, beside the ideal, at the lowest temperature that was measured."""
    if not rows:
        return None
    lowest = min(row["temperature"] for row in rows)
    ordered = sorted(
        (row for row in rows if row["temperature"] == lowest), key=lambda row: row["added_ms"]
    )

    def points(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(float(place), value) for place, value in enumerate(values)]

    names = [f"{row['added_ms']:.3g}" for row in ordered]
    return plot(
        f"Speed-up over plain decoding, {ordered[0]['unit_ms']:.0f} ms a pass, temperature {lowest:g}",
        [
            Series(name="ideal", points=points([r["ideal"] for r in ordered]), is_dashed=True),
            Series(
                name="pipelined",
                points=points([r["decode_speed_up"]["pipelined"] for r in ordered]),
            ),
            Series(
                name="lock-step, ideal",
                points=points([r["lockstep_ideal"] for r in ordered]),
                is_dashed=True,
            ),
            Series(
                name="lock-step", points=points([r["decode_speed_up"]["lockstep"] for r in ordered])
            ),
            Series(name="plain", points=points([1.0] * len(ordered)), is_dashed=True),
        ],
        x=Axis(label="added delay, one way, ms", names=names),
        y=Axis(label="times plain decoding", least=0.0),
    )


def load(rows: Rows) -> str | None:
    """Throughput over requests at once, of the first target in the rows."""
    ordered = sorted(
        (
            row
            for row in rows
            if (row["part"], row["temperature"], row["lengths"]) == (rows[0]["part"], 0.0, "mixed")
        ),
        key=lambda row: row["concurrency"],
    )
    if not ordered:
        return None
    lines = {
        "Outrider": [row["speculative"]["tokens_per_s"] for row in ordered],
        "plain, same engine": [row["plain"]["tokens_per_s"] for row in ordered],
        "continuous batching": [row["transformers"].get("tokens_per_s") for row in ordered],
    }
    return plot(
        f"Throughput, target {ordered[0]['target']}, answers of mixed lengths",
        [
            Series(
                name=name,
                points=[(float(x), y) for x, y in enumerate(values) if y is not None],
            )
            for name, values in lines.items()
        ],
        x=Axis(label="requests at once", names=[str(row["concurrency"]) for row in ordered]),
        y=Axis(label="tokens a second", least=0.0),
    )


def reliability(rows: Rows) -> str | None:
    """Realised against expected frequency, by drafter."""
    series = [Series(name="agreement", points=[(0.0, 0.0), (1.0, 1.0)], is_dashed=True)]
    for row in rows:
        if row["expected"]:
            points = [(bin_["expected"], bin_["drawn"]) for bin_ in row["expected"]]
            series.append(Series(name=row["drafter"], points=points))
    if len(series) == 1:
        return None
    return plot(
        "Candidates whose parent was reached: expected and drawn",
        series,
        x=Axis(label="expected probability", least=0.0, greatest=1.0),
        y=Axis(label="drawn", least=0.0, greatest=1.0),
    )


def efficiency(rows: Rows) -> str | None:
    """Speed-up and ideal over the cost of a target pass, for each temperature."""
    temperatures = sorted({row["temperature"] for row in rows})
    series = []
    for temperature in temperatures:
        chosen = sorted(
            (r for r in rows if r["temperature"] == temperature), key=lambda row: row["unit_ms"]
        )
        for name, key, is_dashed in (("", "decode_speed_up", False), ("ideal, ", "ideal", True)):
            series.append(
                Series(
                    name=f"{name}T = {temperature:g}",
                    points=[(row["unit_ms"], row[key]) for row in chosen],
                    is_dashed=is_dashed,
                )
            )
    if not series:
        return None
    return plot(
        "One stream: speed-up over plain decoding",
        series,
        x=Axis(label="a target pass, ms", least=0.0),
        y=Axis(label="times plain decoding", least=0.0),
    )
