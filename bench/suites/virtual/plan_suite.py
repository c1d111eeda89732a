"""The planner judged: beside measured services, its closed form beside virtual time, the findings of Yan et al. (2024), and sizes from 10 to
10,000 GPUs.

Everything is computed, nothing is measured here; the rows are the same on every machine as long as `prices.yaml` and the rows of `bench emulated`
are.

- `measured`: what a plan says of each point of `bench emulated` whose drafters may rest, beside what was measured there.
- `closed form`: one target and one drafter in twelve configurations.
- `latency`: 2402.01528 found that a draft's latency decides, not its quality, and that it grows with layers, not with width. Passes of
  LLaMA-65B (60 ms) with drafts of 24 to 1 layers, of several qualities, in lock-step as there and as this service does.
- `scale`: cells of a 70 B target on four H100 and a 1 B drafter on one, at several loads, as many at a coordinator as it carries. All groups of up to
  1,000 GPUs are run, each with texts of its own; groups share nothing, so what is larger is as many again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.report import rows as results
from bench.running.asked import among
from bench.suites.service.emulated_suite import PROMPT_TOKENS
from outrider.actors.speculation.options import Speculation
from outrider.cluster.plan.plan_request import PlanRequest, PlanTraffic
from outrider.cluster.plan.serving_ways import Option, all_plain_rate, options
from outrider.cluster.plan.trial import rate, scenario, tried
from outrider.cluster.simulate.compare import run as run_mode
from outrider.cluster.simulate.compare import session_rounds
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulate_command import quiet
from outrider.cluster.simulate.simulated_service import SimulatedMode

KEYS = ("part", "case")
"""What tells rows apart."""

PARTS = ("measured", "closed form", "latency", "scale")

CHOICES = {"parts": among(PARTS)}
"""What its options may say."""

CONFIGURATIONS = (
    ("h100x4-70b", "h100-1b", 70, 0.1, 1, 16),
    ("h100x4-70b", "h100-1b", 70, 0.1, 4, 16),
    ("h100x4-70b", "h100-1b", 70, 0.1, 16, 8),
    ("h100x4-70b", "h100-1b", 70, 0.1, 64, 4),
    ("25ms+20us", "1.5ms+5us", 70, 0.1, 1, 16),
    ("25ms+20us", "1.5ms+5us", 70, 0.1, 16, 16),
    ("25ms+20us", "1.5ms+5us", 85, 10.0, 1, 16),
    ("25ms+20us", "1.5ms+5us", 85, 0.1, 64, 8),
    ("10ms+10us", "1ms+3us", 70, 0.1, 1, 16),
    ("10ms+10us", "1ms+3us", 70, 0.1, 4, 16),
    ("10ms+10us", "1ms+3us", 50, 5.0, 1, 16),
    ("10ms+10us", "1ms+3us", 90, 0.1, 16, 16),
)
"""Profiles of target and drafter, agreement, milliseconds one way, requests, nodes."""

DRAFT_MS = {24: 13.13, 12: 6.69, 5: 2.93, 1: 0.79}
"""Of a token, by layers. 24 and 12 are the deep and the wide draft of 1.3 B of the paper, as measured there; 5 and 1, its wide drafts of
796 M and 290 M, lie on the line through these two, since the paper found that width costs next to nothing."""

AGREEMENTS = (55, 65, 75, 85)

CELL_LOADS = (4, 16, 64)
"""Requests at a target."""

CELL_GPUS = 5

SIZES = (10, 100, 1_000, 10_000)
"""GPUs."""

MOST_SIMULATED = {4: 1_000, 16: 1_000, 64: 100}
"""GPUs that are simulated, by requests at a target: some ten minutes of one core each."""

CARRIED = 0.7
"""Part of a core that a coordinator may take."""

LOOPBACK_MS = 0.05
"""One way, from process to process on one machine."""

DEFAULT_NODES = Speculation().max_nodes
"""Of a tree, where a request does not say."""


def run(*, parts: Sequence[str] | None = None, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """Rows of all parts.

    Args:
        parts: Some of them; None: all.
        is_quick: One row each.
    """
    few = 1 if is_quick else None
    points = [
        row
        for row in results.read("emulated")
        if row["drafting"] == "adaptive" and row["drafters"] == 1
    ]
    rows: tuple[Callable[[], Iterator[dict[str, Any]]], ...] = (
        lambda: (measured(row) for row in points[:few]),
        lambda: (closed_form(*each) for each in CONFIGURATIONS[:few]),
        lambda: (latency(layers, agrees) for agrees in AGREEMENTS[:few] for layers in DRAFT_MS),
        lambda: (scale(load, is_quick=is_quick) for load in CELL_LOADS[:few]),
    )
    with quiet():
        for part, found in zip(PARTS, rows, strict=True):
            if parts is None or part in parts:
                yield from found()


def measured(row: dict[str, Any]) -> dict[str, Any]:
    """What a plan says of a configuration that was measured: tokens a second, plain and with its drafter."""
    agrees = int(row["law"].removeprefix("agree"))
    made = _request(
        row["profile"], row["draft_profile"], agrees, LOOPBACK_MS, row["level"], DEFAULT_NODES
    )
    traffic = {"requests": row["level"], "tokens": row["max_tokens"], "prompt": PROMPT_TOKENS}
    request = made.model_copy(update={"traffic": PlanTraffic.model_validate(traffic)})
    found = tried(request, _option(request)).option
    rates = {
        "plain": found.tokens_per_s / found.speed_up,
        "speculative": found.tokens_per_s,
    }
    return {
        "part": "measured",
        "case": f"{row['profile']}, {row['draft_profile']}, {row['law']}, {row['level']} requests",
        **{
            way: {
                "planned": planned,
                "measured": row[way]["tokens_per_s"],
                "error": planned / row[way]["tokens_per_s"] - 1.0,
            }
            for way, planned in rates.items()
        },
        "of": {key: row["machine"][key] for key in ("cpu", "commit")},
    }


def closed_form(
    target: str, drafter: str, agrees: int, latency_ms: float, requests: int, nodes: int
) -> dict[str, Any]:
    """What the closed form expects of one target, and what virtual time gives."""
    request = _request(target, drafter, agrees, latency_ms, requests, nodes)
    option = _option(request)
    found = tried(request, option)
    return {
        "part": "closed form",
        "case": f"{target}, {drafter}, agree{agrees}, {latency_ms:g} ms, {requests} requests, {nodes} nodes",
        "expected": found.expected,
        "simulated": found.option.speed_up,
        "error": found.expected / found.option.speed_up - 1.0,
        "plain_tokens_per_s": found.option.tokens_per_s / found.option.speed_up,
    }


def latency(layers: int, agrees: int) -> dict[str, Any]:
    """A draft of the paper at a quality, for one request: tokens a second."""
    draft_ms = DRAFT_MS[layers]
    request = _request("60ms+100us", f"{draft_ms:g}ms+10us", agrees, 0.05, 1, 16)
    option = _option(request)
    made = scenario(request, option)
    runs = {mode: run_mode(made, mode) for mode in SimulatedMode}
    return {
        "part": "latency",
        "case": f"{layers} layers, agree{agrees}",
        "layers": layers,
        "agrees": agrees,
        "draft_ms": draft_ms,
        **{str(mode): rate(one) for mode, one in runs.items()},
        "tokens_per_pass": {
            str(mode): sum(sum(log.tokens) for log in one.logs.values()) / session_rounds(one)
            for mode, one in runs.items()
        },
    }


def scale(load: int, *, is_quick: bool = False) -> dict[str, Any]:
    """So many requests at each target, in fleets of several sizes.

    Args:
        load: Requests.
        is_quick: Of fleets only the smallest is simulated.
    """
    most_gpus = SIZES[0] if is_quick else MOST_SIMULATED[load]
    request = _request("h100x4-70b", "h100-1b", 70, 0.1, load, 16)
    cell = scenario(request, _option(request))
    plain, piped = run_mode(cell, SimulatedMode.PLAIN), run_mode(cell, SimulatedMode.PIPELINED)
    most_cells = max(int(CARRIED / (piped.cpu_s["coordinator"] / piped.seconds)), 1)
    sizes, groups, busiest = {}, _Groups(cell, most_cells), 0.0
    for gpus in SIZES:
        cells = gpus // CELL_GPUS
        simulated = min(cells, most_gpus // CELL_GPUS)
        tokens_per_s, busiest = groups.run(simulated), groups.busiest
        # The same GPUs without drafters hold more targets, and as many requests are spread over them.
        targets = gpus // (CELL_GPUS - 1)
        traffic = request.traffic.model_copy(update={"requests": cells * load})
        fleet = request.model_copy(update={"traffic": traffic})
        sizes[str(gpus)] = {
            "cells": cells,
            "simulated": simulated,
            "requests": cells * load,
            "tokens_per_s": tokens_per_s * cells / simulated,
            "plain_tokens_per_s": all_plain_rate(fleet, targets),
            "coordinators": math.ceil(cells / most_cells),
        }
    return {
        "part": "scale",
        "case": f"{load} requests a target",
        "cell_tokens_per_s": rate(piped),
        "speed_up": rate(piped) / rate(plain),
        "cells_of_a_coordinator": most_cells,
        "coordinator_share": busiest,
        "target_share": piped.cpu_s["t0"] / piped.seconds,
        "drafter_share": piped.cpu_s["d"] / piped.seconds,
        "sizes": sizes,
    }


class _Groups:
    """Cells at coordinators, each group with texts of its own."""

    def __init__(self, cell: Scenario, most_cells: int) -> None:
        """
        Args:
            cell: One target and its drafter.
            most_cells: At a coordinator.
        """
        self._cell = cell
        self._most_cells = most_cells
        self._known: dict[tuple[int, int], float] = {}
        self.busiest = 0.0
        """Part of a core that the coordinator of the largest group took."""

    def run(self, cells: int) -> float:
        """Tokens a second of so many cells."""
        total = 0.0
        for number in range(math.ceil(cells / self._most_cells)):
            size = min(self._most_cells, cells - number * self._most_cells)
            if (number, size) not in self._known:
                self._known[number, size] = self._simulated(number, size)
            total += self._known[number, size]
        return total

    def _simulated(self, number: int, cells: int) -> float:
        """Of one group."""
        cell, (load,) = self._cell, self._cell.load
        made = Scenario.model_validate(
            {
                **cell.model_dump(),
                "seed": 1 + number,
                "seconds": cell.seconds / 2.0,
                "targets": [
                    {**cell.targets[0].model_dump(), "name": f"t{index}"} for index in range(cells)
                ],
                "drafters": [
                    {
                        **cell.drafters[0].model_dump(),
                        "name": f"d{index}",
                        "targets": (f"t{index}",),
                    }
                    for index in range(cells)
                ],
                "load": [{**load.model_dump(), "clients": load.clients * cells}],
            }
        )
        found = run_mode(made, SimulatedMode.PIPELINED)
        self.busiest = max(self.busiest, found.cpu_s["coordinator"] / found.seconds)
        return rate(found)


def _request(
    target: str, drafter: str, agrees: int, latency_ms: float, requests: int, nodes: int
) -> PlanRequest:
    return PlanRequest.model_validate(
        {
            "target": {"profile": target},
            "drafters": [
                {"name": "d", "profile": drafter, "agrees": agrees, "latency_ms": latency_ms}
            ],
            "traffic": {"requests": requests, "tokens": 128, "prompt": 16},
            "nodes": [nodes],
        }
    )


def _option(request: PlanRequest) -> Option:
    return next(one for one in options(request) if one.drafter is not None and one.targets == 1)
