"""The ideal of a pair of laws on emulated devices, and eta beside it: `actors/speculation/ideal.py` with the device's own plain pass as the unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from bench.ideals.efficiency import best_tree, told
from bench.ideals.law import Text, replay
from outrider.actors.engine.profiles import Profile, draft_profile, find_profile
from outrider.actors.speculation.ideal import drafter_bound, ideal, law_of

REPLAYED = 8
"""Texts that the acceptance law is taken from, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A law, and what target and drafter run on."""

    law: str
    target: Profile
    draft: Profile

    @classmethod
    def of(cls, profiles: str, law: str) -> Self:
        """From `TARGET:DRAFTER`, or `TARGET` alone.

        Raises:
            ValueError: There is no such profile.
        """
        target, _, draft = profiles.partition(":")
        return cls(
            law=law,
            target=find_profile(target),
            draft=find_profile(draft or draft_profile(target)),
        )

    def told(self) -> dict[str, Any]:
        """For a result row."""
        return {"profile": self.target.name, "draft_profile": self.draft.name, "law": self.law}

    def pass_s(self, sessions: int, context: int, *, nodes: int = 0) -> float:
        """Seconds of a target pass with so many nodes for each session, beside its own token's row."""
        return self.target.seconds(
            rows=sessions * (1 + nodes), sessions=sessions, context=sessions * context
        )


def ideal_of(
    pair: Pair,
    *,
    level: int,
    units: float,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    temperature: float,
    max_context: int,
) -> dict[str, Any]:
    """What a result row says of the ideal.

    Args:
        pair: The pair.
        level: Requests at once.
        units: What was reached, in units of the device's own plain decoding.
        texts: Prompts and outputs, the position being the seed.
        temperature: They were decoded with.
        max_context: Room that they need.
    """
    replayed = replay(
        f"law:{pair.law}/draft",
        [
            Text(prompt=prompt, output=output, seed=seed)
            for seed, (prompt, output) in enumerate(texts[:REPLAYED])
        ],
        temperature=temperature,
        max_context=max_context,
    )
    context = sum(len(prompt) + len(output) // 2 for prompt, output in texts) // len(texts)
    unit_s = pair.pass_s(level, context)
    law = law_of([*replayed.hits, False])
    draft_cost = pair.draft.seconds(rows=level, sessions=level, context=level * context) / unit_s
    tokens, cost = best_tree(
        {
            size: (tokens, pair.pass_s(level, context, nodes=size) / unit_s)
            for size, tokens in replayed.tokens_per_pass.items()
        }
    )
    best = ideal(law, tokens_per_pass=tokens, pass_cost=cost, draft_cost=draft_cost, round_trip=0.0)
    return {
        "unit_ms": 1e3 * unit_s,
        "draft_cost": draft_cost,
        "acceptance": told(law),
        "replayed_tokens_per_pass": {
            str(size): tokens for size, tokens in replayed.tokens_per_pass.items()
        },
        "drafter_bound": drafter_bound(law, draft_cost=draft_cost, round_trip=0.0),
        "target_bound": max(1.0, tokens / cost),
        "ideal": best,
        "eta": units / best,
    }
