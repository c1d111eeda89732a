"""Random scenarios in virtual time, against the promise: never slower than plain decoding, never slower than lock-step, no other output, no failed
request. Rows are the same on every machine as long as `prices.yaml` is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.running.asked import among
from bench.suites.virtual.random_scenario import KINDS, kind_of, random_scenario
from outrider.cluster.simulate.compare import compare
from outrider.cluster.simulate.simulate_command import quiet
from outrider.cluster.simulate.simulated_service import SimulatedMode

KEYS = ("seed",)
"""What tells rows apart."""

CHOICES = {"parts": among(KINDS)}
"""What its options may say."""

COUNT = 48
"""Scenarios of a run: eight of each kind, ten minutes."""

QUICK_ROUNDS = 0.1
"""Of its length that a scenario lasts for with `is_quick`."""

SLOWER = 0.98
"""Times the other way of decoding, below which a scenario is named in the summary: what trials may cost in so short a run."""


def run(
    *, seed: int = 0, count: int = COUNT, parts: Sequence[str] | None = None, is_quick: bool = False
) -> Iterator[dict[str, Any]]:
    """One row a scenario.

    Args:
        seed: Of the first one; the others follow.
        count: Seeds that are looked at.
        parts: Kinds; None: all.
        is_quick: One of each kind, and short.
    """
    rows: list[dict[str, Any]] = []
    for number in range(seed, seed + (len(KINDS) if is_quick else count)):
        if parts is None or kind_of(number) in parts:
            rows.append(row_of(number, length=QUICK_ROUNDS if is_quick else 1.0))
            yield rows[-1]
    for line in summary(rows):
        print(line)


def row_of(seed: int, *, length: float = 1.0) -> dict[str, Any]:
    """Runs a scenario.

    Args:
        seed: Its number.
        length: Part of its seconds that are run.
    """
    scenario = random_scenario(seed)
    scenario = scenario.model_copy(update={"seconds": length * scenario.seconds})
    with quiet():
        figures = compare(scenario)
    return {
        "seed": seed,
        "kind": kind_of(seed),
        "speed_up": figures.speed_up,
        "over_lockstep": figures.over_lockstep,
        "window": figures.window,
        "tokens_per_pass": figures.tokens_per_pass,
        "failed": figures.failed,
        # No bounds are set, so what is broken beside failed requests are outputs.
        "equal": len(figures.broken) == (figures.failed > 0),
        "plain_tokens_per_s": figures.tokens_per_s[SimulatedMode.PLAIN],
    }


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What rows say together, a line for each kind."""
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        if not own:
            continue
        yield f"{kind}: {len(own)} scenarios; " + "; ".join(
            f"{told} {min(row[name] for row in own):.2f} at least, below {SLOWER:g} in {_named(own, name)}"
            for name, told in (("speed_up", "over plain"), ("over_lockstep", "over lock-step"))
        )
    yield f"outputs differ in {sum(not row['equal'] for row in rows)}, requests failed in {sum(row['failed'] > 0 for row in rows)}"


def _named(rows: Sequence[dict[str, Any]], name: str) -> str:
    seeds = [str(row["seed"]) for row in rows if row[name] < SLOWER]
    return f"{len(seeds)} (seeds {', '.join(seeds)})" if seeds else "0"
