"""Virtual time beside real models: each row of `bench single` run again, its models told by three measured figures each.

Of a row count a one-token pass of the target, a row of a tree, a draft pass, and how many tokens a tree of the drafter's best candidates gives, found by replay.
The last picks a law: the one of `law:agreeNN` whose trees give the most similar numbers. Passes take cores of the machine that measured, as real
ones do. What is predicted is the speed-up over plain decoding; what processes do to each other's caches is not there, and texts are a law's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.report import rows as results
from bench.running.asked import target_cost
from outrider.cluster.plan.trial import rate
from outrider.cluster.simulate.compare import run as run_mode
from outrider.cluster.simulate.compare import session_rounds
from outrider.cluster.simulate.foresight import foresight
from outrider.cluster.simulate.prices import load_prices
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulate_command import quiet
from outrider.cluster.simulate.simulated_service import SimulatedMode

KEYS = ("part", "temperature")
"""What tells rows apart."""

CHOICES = {"parts": target_cost}
"""What its options may say."""

AGREEMENTS = range(40, 96, 2)
"""Laws that are tried."""

TEMPERATURE = 0.8
"""At which laws have their names."""

MAX_NODES, MAX_DEPTH = 16, 8
"""Of a tree, as requests of `single` have them."""

DRAFT_ROW_US = 50
"""Of a draft pass, microseconds: from `bench costs`, for rows of one pass are not told apart in `single`."""

PROMPT_TOKENS = 59
"""Mean of the prompts."""

SECONDS = 20.0
"""Virtual."""


def run(*, parts: Sequence[str] | None = None, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row for each row of `single`.

    Args:
        parts: Targets.
        is_quick: One row.

    Raises:
        SystemExit: Nothing was measured that is asked for.
    """
    measured = [
        row
        for row in results.read("single")
        if "part" in row and (parts is None or row["part"] in parts)
    ]
    if not measured:
        raise SystemExit(
            "nothing to predict: bench/results/single.jsonl has no such row; run `python -m bench single` first"
        )
    for row in measured[: 1 if is_quick else None]:
        yield predicted(row)


def predicted(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `single` in virtual time."""
    law = nearest_law({int(size): n for size, n in row["replayed_tokens_per_pass"].items()})
    with quiet():
        plain, piped = (
            run_mode(scenario(row, law), mode)
            for mode in (SimulatedMode.PLAIN, SimulatedMode.PIPELINED)
        )
    speed_up = rate(piped) / rate(plain)
    return {
        "part": row["part"],
        "temperature": row["temperature"],
        "law": law,
        "measured": row["decode_speed_up"],
        "predicted": speed_up,
        "error": speed_up / row["decode_speed_up"] - 1.0,
        "tokens_per_pass": {
            "measured": row["tokens_per_pass"],
            "predicted": sum(sum(log.tokens) for log in piped.logs.values())
            / session_rounds(piped),
        },
        "prices": load_prices().machine,
        "of": {**row["machine"], "date": row["date"]},
    }


def nearest_law(tokens_by_nodes: dict[int, float]) -> str:
    """The law whose best trees give the most similar numbers of tokens a pass, by the sum of squares."""

    def distance(agrees: int) -> float:
        name = f"law:agree{agrees}"
        found = foresight(name, f"{name}/draft", TEMPERATURE, MAX_NODES, MAX_DEPTH).tokens_by_nodes
        return sum((found[size] - tokens) ** 2 for size, tokens in tokens_by_nodes.items())

    return f"agree{min(AGREEMENTS, key=distance)}"


def scenario(row: dict[str, Any], law: str) -> Scenario:
    """One request after another, on the cores of the machine that measured."""
    unit_ms = row["unit_ms"]
    row_us = max(1e3 * unit_ms * (row["pass_cost"] - 1.0) / row["pass_nodes"], 1.0)
    draft_ms = max(row["draft_cost"] * unit_ms - DRAFT_ROW_US / 1e3, 0.01)
    on_cores = {"slots": 4, "machine": "box", "on_cores": True}
    return Scenario.model_validate(
        {
            "name": f"{row['part']} {row['temperature']:g}",
            "seconds": SECONDS,
            "temperature": TEMPERATURE,
            "max_nodes": MAX_NODES,
            "max_depth": MAX_DEPTH,
            "machines": {"box": row["machine"]["cores"]},
            "coordinator_machine": "box",
            "targets": [
                {
                    "name": "t",
                    "model": f"law:{law}",
                    "profile": f"{unit_ms:.3f}ms+{row_us:.0f}us",
                    **on_cores,
                }
            ],
            "drafters": [
                {
                    "name": "d",
                    "model": f"law:{law}/draft",
                    "profile": f"{draft_ms:.3f}ms+{DRAFT_ROW_US}us",
                    **on_cores,
                }
            ],
            "load": [{"clients": 1, "tokens": row["max_tokens"], "prompt": PROMPT_TOKENS}],
        }
    )
