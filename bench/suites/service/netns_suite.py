"""Pipelined against lock-step with a real network between drafter and target: the drafter runs on a host of its own.

TCP itself sees the delay: its handshakes, its acknowledgements, its window. See `bench.network.network` for what that needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.network.network import Unavailable, network
from bench.running.asked import milliseconds, target_cost

KEYS = ("delay_ms", "temperature")
"""What tells rows apart."""

CHOICES = {"part": target_cost, "parts": milliseconds("quarter")}
"""What its options may say."""

FAR = "far"
"""The drafter's host."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    part: str = "25",
    parts: Sequence[str] | None = None,
    temperatures: Sequence[float] = (0.0,),
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each delay and temperature; none, and a line that says why, where it cannot be done."""
    from bench.network.between import over_network
    from bench.suites.service import delay_suite

    try:
        with network([FAR]) as made:
            yield from delay_suite.measure(
                over_network(made, FAR),
                target=target,
                draft=draft,
                part=part,
                parts=parts,
                temperatures=temperatures,
                runs=runs,
                is_quick=is_quick,
            )
    except Unavailable as reason:
        print(f"netns: skipped, {reason}")
