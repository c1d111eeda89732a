"""Eta over load, delay, acceptance, draft and row cost in virtual time, and throughput over load on emulated devices, as plots. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from bench.report.captions import Rows
from bench.report.svg import Axis, Series, plot

MEDIAN, LEAST = 0.9, 0.75
"""Of eta: what is wanted of all points in the median, and of each."""

OVER = {
    "load": ("sessions", "requests at once"),
    "delay": ("round_trip", "round trip, target passes"),
    "acceptance": ("law", "draws that are the drafter's first candidate, %"),
    "draft-cost": ("draft_cost", "a draft pass, target passes"),
    "row-cost": ("rows", "what rows cost: nothing, or a twentieth of a pass each"),
}
"""By the end of the plot's name: a key of the grid's rows, and what it is."""


def eta_over(key: str, label: str) -> Callable[[Rows], str | None]:
    """Draws eta over one dimension of the grid: each point, and the median of those that agree in it."""

    def draw(rows: Rows) -> str | None:
        if not rows:
            return None
        values = sorted({row[key] for row in rows})
        found = [[row["eta"] for row in rows if row[key] == value] for value in values]
        ends = (0.0, float(max(len(values) - 1, 1)))
        return plot(
            f"Eta in virtual time, {len(rows)} points",
            [
                Series(
                    name="each point",
                    points=[(float(at), eta) for at, etas in enumerate(found) for eta in etas],
                    has_line=False,
                ),
                Series(
                    name="median",
                    points=[(float(at), statistics.median(etas)) for at, etas in enumerate(found)],
                ),
                Series(name="wanted, median", points=[(x, MEDIAN) for x in ends], is_dashed=True),
                Series(name="wanted, each", points=[(x, LEAST) for x in ends], is_dashed=True),
            ],
            x=Axis(label=label, names=[_name(value) for value in values]),
            y=Axis(label="speed-up over the ideal", least=0.0),
        )

    return draw


def _name(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def units_over_level(way: str) -> Callable[[Rows], str | None]:
    """Draws throughput on emulated devices over the number of requests.

    Args:
        way: `plain` or `speculative`.
    """

    def draw(rows: Rows) -> str | None:
        if not rows:
            return None
        levels = sorted({row["level"] for row in rows})
        laws = {row["law"] for row in rows}
        lines: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            lines.setdefault(_line_of(row, has_laws=len(laws) > 1), []).append(row)
        return plot(
            f"Emulated devices, {way} decoding",
            [
                Series(
                    name=name,
                    points=sorted(
                        (float(levels.index(row["level"])), row[way]["units"]) for row in chosen
                    ),
                )
                for name, chosen in lines.items()
            ],
            x=Axis(label="requests at once", names=[str(level) for level in levels]),
            y=Axis(label="times the device's own plain decoding", least=0.0),
        )

    return draw


def _line_of(row: dict[str, Any], *, has_laws: bool) -> str:
    name = f"{row['profile']}, {row['law']}" if has_laws else str(row["profile"])
    return name if row["drafting"] == "always" else f"{name}, shipped"


DRAWN: dict[str, tuple[str, Callable[[Rows], str | None]]] = {
    **{f"eta-{name}": ("grid", eta_over(*over)) for name, over in OVER.items()},
    **{f"emulated-{way}": ("emulated", units_over_level(way)) for way in ("plain", "speculative")},
}
"""By the name of their file: a suite, and how its rows are drawn."""
