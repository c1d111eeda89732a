"""The planner judged: its closed form beside virtual time, the findings of Yan et al. (2024), and sizes from 10 to 10,000 GPUs.

Everything is computed, nothing is measured here; the rows are the same on every machine as long as `prices.yaml` is.

- `closed form`: one target and one drafter in twelve configurations.
- `latency`: 2402.01528 found that a draft's latency decides, not its quality. Passes of LLaMA-65B (60 ms) with drafts of 13.13 ms
  (deep) and 6.69 ms (wide), of several qualities, in lock-step as there and as this service does.
- `scale`: a cell of a 70 B target on four H100 and a 1 B drafter on one, at several loads, times the number of cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from outrider.cluster.plan.options import Option, options, plain_rate
from outrider.cluster.plan.request import PlanRequest
from outrider.cluster.plan.trial import rate, scenario, tried
from outrider.cluster.simulate.command import quiet
from outrider.cluster.simulate.compare import run as run_mode
from outrider.cluster.simulate.service import Mode

KEYS = ("part", "case")
"""What tells rows apart."""

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

DRAFT_MS = {"deep": 13.13, "wide": 6.69}
"""Of a token of the two 1.3 B drafts of the paper."""

AGREEMENTS = (65, 75, 85)

CELL_LOADS = (4, 16, 64)
"""Requests at a target."""

CELL_GPUS = 5

SIZES = (10, 100, 1_000, 10_000)
"""GPUs."""


def run(*, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """Rows of all parts.

    Args:
        is_quick: One row each.
    """
    few = 1 if is_quick else None
    with quiet():
        for configuration in CONFIGURATIONS[:few]:
            yield closed_form(*configuration)
        for agrees in AGREEMENTS[:few]:
            for name, draft_ms in DRAFT_MS.items():
                yield latency(name, draft_ms, agrees)
        for load in CELL_LOADS[:few]:
            yield scale(load)


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


def latency(name: str, draft_ms: float, agrees: int) -> dict[str, Any]:
    """A draft of the paper at a quality, for one request: tokens a second."""
    request = _request("60ms+100us", f"{draft_ms:g}ms+10us", agrees, 0.05, 1, 16)
    option = _option(request)
    made = scenario(request, option)
    rates = {mode: rate(run_mode(made, mode)) for mode in Mode}
    return {
        "part": "latency",
        "case": f"{name}, agree{agrees}",
        "draft_ms": draft_ms,
        **{str(mode): value for mode, value in rates.items()},
    }


def scale(load: int) -> dict[str, Any]:
    """A cell at a load, and how many of them go into so many GPUs."""
    request = _request("h100x4-70b", "h100-1b", 70, 0.1, load, 16)
    made = scenario(request, _option(request))
    plain, piped = run_mode(made, Mode.PLAIN), run_mode(made, Mode.PIPELINED)
    cell, alone = rate(piped), rate(plain)
    coordinator = piped.cpu_s["coordinator"] / piped.seconds
    sizes = {}
    for gpus in SIZES:
        cells = gpus // CELL_GPUS
        # The same GPUs without drafters hold more targets, and as many requests are spread over them.
        targets = gpus // (CELL_GPUS - 1)
        sizes[str(gpus)] = {
            "cells": cells,
            "requests": cells * load,
            "tokens_per_s": cells * cell,
            "plain_tokens_per_s": targets * _plain(request, cells * load / targets),
            "coordinators": math.ceil(cells * coordinator / 0.7),
        }
    return {
        "part": "scale",
        "case": f"{load} requests a target",
        "cell_tokens_per_s": cell,
        "speed_up": cell / alone,
        "coordinator_share": coordinator,
        "target_share": piped.cpu_s["t0"] / piped.seconds,
        "drafter_share": piped.cpu_s["d"] / piped.seconds,
        "sizes": sizes,
    }


def _plain(request: PlanRequest, sessions: float) -> float:
    return plain_rate(request, max(1, round(sessions)))


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
