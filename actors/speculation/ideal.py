"""The speed-up that no engine can beat, from the costs and the acceptance law of one run. Pure.

Times are in units of a one-token target pass: `draft_cost` is a draft step, `round_trip` the added and inherent network
delay there and back, `pass_cost` a pass over candidates.

Two bounds hold at once, and the ideal is the lesser.

- *The drafter's.* The text is a chain of runs: L tokens that the drafter has among its candidates, then one that it has not.
  The last of the L cannot be at the target before a round trip and L draft steps have gone by since the verdict that began
  the run, and one pass must follow; or else the target decodes all L + 1 plainly. So a run takes at least
  min(L + 1, 1 + round_trip + L draft_cost), and the speed-up is at most E[L + 1] over the mean of that. (The renewal bound of
  DSI, Timor et al. 2024, arXiv 2405.14105, with plain decoding as the alternative.)
- *The target's.* With drafting and network for nothing, a pass over candidates commits `tokens_per_pass` and costs
  `pass_cost`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

Law = Mapping[int, float]
"""Probability of each length of a run; adds up to 1."""

LONGEST: Final = 2000
"""Longest run of the geometric law: what is longer counts as so long."""


def law_of(hits: Iterable[bool]) -> dict[int, float]:
    """The law of the length of runs of hits that end with a miss. The last run, cut off by the end, is left out.

    Raises:
        ValueError: No run ended: more text is needed.
    """
    runs: list[int] = []
    length = 0
    for is_hit in hits:
        if is_hit:
            length += 1
            continue
        runs.append(length)
        length = 0
    if not runs:
        raise ValueError(f"no run ended within {length} tokens: measure over more text")
    return {length: count / len(runs) for length, count in sorted(Counter(runs).items())}


def geometric(acceptance: float, *, longest: int = LONGEST) -> dict[int, float]:
    """The law if every token is a hit with the same probability, whatever came before.

    Raises:
        ValueError: `acceptance` is not in [0, 1).
    """
    if not 0.0 <= acceptance < 1.0:
        raise ValueError(f"acceptance is {acceptance}; it must be at least 0 and less than 1")
    law = {length: (1.0 - acceptance) * acceptance**length for length in range(longest)}
    law[longest] = acceptance**longest
    return law


def mean_run(law: Law) -> float:
    """E[L]."""
    return sum(length * share for length, share in law.items())


def drafter_bound(law: Law, *, draft_cost: float, round_trip: float) -> float:
    """Greatest speed-up as far as drafting and the network go."""
    took = sum(
        share * min(length + 1.0, 1.0 + round_trip + length * draft_cost)
        for length, share in law.items()
    )
    return (mean_run(law) + 1.0) / took


def target_bound(tokens_per_pass: float, *, pass_cost: float) -> float:
    """Greatest speed-up as far as the target goes; 1 if candidates do not pay."""
    return max(1.0, tokens_per_pass / pass_cost)


def lockstep_speed_up(
    tokens_per_pass: float,
    *,
    pass_cost: float,
    levels: float,
    draft_cost: float,
    round_trip: float,
) -> float:
    """What drafter and target reach that wait for each other (Leviathan et al. 2023, arXiv 2211.17192, with a network).

    Args:
        tokens_per_pass: Mean tokens of a pass.
        pass_cost: Of a pass over candidates.
        levels: Draft steps of one tree.
        draft_cost: Of one of them.
        round_trip: From verdict sent to candidates received, drafting left out.
    """
    return tokens_per_pass / (pass_cost + levels * draft_cost + round_trip)


def ideal(
    law: Law,
    *,
    tokens_per_pass: float,
    pass_cost: float,
    draft_cost: float,
    round_trip: float,
) -> float:
    """The lesser of both bounds, at least 1: plain decoding is always possible."""
    return max(
        1.0,
        min(
            drafter_bound(law, draft_cost=draft_cost, round_trip=round_trip),
            target_bound(tokens_per_pass, pass_cost=pass_cost),
        ),
    )
