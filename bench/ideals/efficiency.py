"""The measured speed-up beside the ideal of the same run: c, rho, kappa, the acceptance law, and eta. Pure.

eta is the speed-up over the ideal of `actors/speculation/ideal.py`. Above 1 (beyond what the runs scatter) it is a bug: tokens counted twice, a
slow baseline, or a wrong ideal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.figures.passes import Passes
from bench.ideals.law import Replay
from bench.running.targets import BenchTarget
from outrider.actors.speculation.ideal import (
    drafter_bound,
    ideal,
    law_of,
    lockstep_speed_up,
    mean_run,
)

LONGEST_TOLD = 24
"""Run lengths told one by one; longer ones are told together, which the table of a report has no room for anyway."""


def efficiency(
    speed_up: float,
    *,
    plain: Passes,
    pipelined: Passes,
    tokens_per_pass: float,
    replayed: Replay,
    target: BenchTarget,
    round_trip_s: float,
) -> dict[str, Any]:
    """What a result row says of the ideal.

    Args:
        speed_up: Decoding over plain decoding, prompts left out.
        plain: Passes of the plain runs; their mean is the unit of all costs.
        pipelined: Passes of the speculative runs.
        tokens_per_pass: Mean tokens of a pass over candidates in those.
        replayed: What the drafter would have foreseen.
        target: Its curve tells what trees cost that no run verified.
        round_trip_s: Between drafter and target, of the network alone.
    """
    unit_s = plain.plain_s
    # A text without a single miss is one run, as far as is known.
    law = law_of(replayed.hits if not all(replayed.hits) else [*replayed.hits, False])
    draft_cost, round_trip = pipelined.draft_s / unit_s, round_trip_s / unit_s
    tokens, cost = best_tree(
        {
            **{
                size: (tokens, 1.0 + target.extra_s(1 + size) / unit_s)
                for size, tokens in replayed.tokens_per_pass.items()
            },
            0: (tokens_per_pass, pipelined.tree_s / unit_s),
        }
    )
    best = ideal(
        law,
        tokens_per_pass=tokens,
        pass_cost=cost,
        draft_cost=draft_cost,
        round_trip=round_trip,
    )
    return {
        "unit_ms": 1e3 * unit_s,
        "draft_cost": draft_cost,
        "round_trip": round_trip,
        "pass_cost": pipelined.tree_s / unit_s,
        "pass_nodes": pipelined.tree_nodes,
        "tokens_per_tree_pass": tokens_per_pass,
        "target_busy": pipelined.busy,
        "law": told(law),
        "mean_run": mean_run(law),
        "replayed_tokens_per_pass": {
            str(size): tokens for size, tokens in replayed.tokens_per_pass.items()
        },
        "drafter_bound": drafter_bound(law, draft_cost=draft_cost, round_trip=round_trip),
        "target_bound": max(1.0, tokens / cost),
        "ideal": best,
        "eta": speed_up / best,
    }


def best_tree(trees: Mapping[int, tuple[float, float]]) -> tuple[float, float]:
    """Tokens and cost of the pass that commits most in its time; trees that cost nothing were not met."""
    met = [(tokens, cost) for tokens, cost in trees.values() if cost > 0.0]
    return max(met, key=lambda tree: tree[0] / tree[1], default=(1.0, 1.0))


def lockstep_ideal(row: Mapping[str, Any], *, levels: float, round_trip: float) -> float:
    """What lock-step would reach if nothing but models and network took time.

    Args:
        row: What `efficiency` said of the same target and drafter.
        levels: Draft passes of one tree.
        round_trip: In units of a plain pass.
    """
    sizes = row["replayed_tokens_per_pass"]
    return lockstep_speed_up(
        sizes[max(sizes, key=int)],
        pass_cost=row["pass_cost"],
        levels=levels,
        draft_cost=row["draft_cost"],
        round_trip=round_trip,
    )


def told(law: Mapping[int, float]) -> dict[str, float]:
    """A law as JSON, short."""
    short = {str(length): round(share, 5) for length, share in law.items() if length < LONGEST_TOLD}
    beyond = sum(share for length, share in law.items() if length >= LONGEST_TOLD)
    return {**short, f"{LONGEST_TOLD}+": round(beyond, 5)} if beyond else short
