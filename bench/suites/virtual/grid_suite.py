"""The service in virtual time over a grid of laws, costs, delays and loads: eta, and whether plain decoding ever was faster.

A target pass takes 10 ms; rows are all but free (`flat`) or a twentieth of a pass each (`linear`). Processor time is free, so what is
judged is the scheduling alone: the code that ships, on devices and links of these speeds. Rows are the same on every machine.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from bench.running.asked import among
from outrider.actors.engine.profiles import find_profile
from outrider.cluster.simulate.compare import ComparedFigures, compare
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulate_command import quiet

KEYS = ("law", "draft_cost", "round_trip", "sessions", "rows")
"""What tells rows apart."""

PASS_MS = 10.0

LAWS = (50, 70, 90)
"""Percentage of draws that are the drafter's first candidate."""

DRAFT_COSTS = (0.02, 0.07, 0.2)
"""Of a draft pass, in target passes."""

ROUND_TRIPS = (0.0, 0.5, 1.0, 3.0)
"""In target passes."""

SESSIONS = (1, 4, 16, 64, 256)

CHOICES = {"parts": among(map(str, SESSIONS))}
"""What its options may say."""

ROWS = {"flat": "10us", "linear": "500us"}
"""What a row adds to a target pass."""

ROUNDS = 450
"""Plain passes that each point lasts for. Passes with candidates may be longer: a point with too few for windows that is not clearly
faster than plain decoding is run again for as long as so many of them take."""

CLEARLY = 1.25
"""Times plain decoding."""

QUICK = (
    (70, 0.07, 0.0, 1, "flat"),
    (70, 0.07, 0.5, 1, "flat"),
    (90, 0.02, 1.0, 1, "linear"),
    (50, 0.2, 3.0, 1, "flat"),
    (70, 0.07, 0.5, 16, "flat"),
)
"""A few points of everything, in less than a minute."""

Point = tuple[int, float, float, int, str]


def run(*, parts: Sequence[str] | None = None, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row a point.

    Args:
        parts: Numbers of sessions; None: all.
        is_quick: A few points.
    """
    points: Sequence[Point] = QUICK if is_quick else tuple(_points())
    rows: list[dict[str, Any]] = []
    for point in points:
        if parts is None or str(point[3]) in parts:
            rows.append(row_of(point))
            yield rows[-1]
    for line in summary(rows):
        print(line)


def _points() -> Iterator[Point]:
    """All points, in an order in which every part of the grid has some early on."""
    points = list(product(SESSIONS, LAWS, DRAFT_COSTS, ROUND_TRIPS, ROWS))
    random.Random(1).shuffle(points)
    for sessions, law, cost, trip, rows in points:
        yield law, cost, trip, sessions, rows


def row_of(point: Point) -> dict[str, Any]:
    """Runs a point."""
    law, cost, trip, sessions, rows = point
    with quiet():
        figures = compare(scenario(point))
        if figures.window is None and figures.speed_up < CLEARLY:
            longer = ROUNDS * figures.tokens_per_pass / figures.speed_up
            figures = compare(scenario(point, rounds=1.1 * longer))
    return {
        "law": law,
        "draft_cost": cost,
        "round_trip": trip,
        "sessions": sessions,
        "rows": rows,
        **_told(figures),
    }


def scenario(point: Point, rounds: float = ROUNDS) -> Scenario:
    """The scenario of a point, so many plain passes long."""
    law, cost, trip, sessions, rows = point
    profile = f"{PASS_MS:g}ms+{ROWS[rows]}"
    pass_s = find_profile(profile).seconds(rows=sessions, sessions=sessions, context=0)
    draft_ms = PASS_MS * cost
    return Scenario.model_validate(
        {
            "name": "-".join(map(str, point)),
            "seconds": rounds * pass_s,
            "prices": "free",
            "targets": [
                {"name": "t", "model": f"law:agree{law}", "profile": profile, "slots": sessions}
            ],
            "drafters": [
                {
                    "name": "d",
                    "model": f"law:agree{law}/draft",
                    "profile": f"{draft_ms:g}ms+{3.0 * draft_ms:g}us",
                    "slots": sessions,
                    "link": {"latency_ms": PASS_MS * trip / 2.0},
                }
            ],
            "load": [{"clients": sessions, "tokens": 7000, "prompt": 16}],
        }
    )


def _told(figures: ComparedFigures) -> dict[str, Any]:
    return {
        "speed_up": figures.speed_up,
        "over_lockstep": figures.over_lockstep,
        "window": figures.window,
        "ideal": figures.ideal,
        "eta": figures.eta,
        "tokens_per_pass": figures.tokens_per_pass,
        "bytes_per_token": figures.bytes_per_token,
        "broken": list(figures.broken),
    }


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What rows say together."""
    if not rows:
        return
    etas = [row["eta"] for row in rows]
    windows = [row["window"] for row in rows if row["window"] is not None]
    halves = [row["over_lockstep"] for row in rows if row["round_trip"] == 0.5]
    yield f"{len(rows)} points: eta {statistics.median(etas):.2f} in the median, {min(etas):.2f} at least"
    if windows:
        slower = sum(window < 0.98 for window in windows)
        yield f"worst window {min(windows):.2f} times plain decoding; below .98 in {slower} points"
    yield f"over lock-step {min(row['over_lockstep'] for row in rows):.2f} at least"
    if halves:
        yield f"behind half a pass over lock-step {min(halves):.2f} at least, {statistics.median(halves):.2f} in the median"
    unequal = sum(bool(row["broken"]) for row in rows)
    yield f"outputs differ in {unequal} points"
