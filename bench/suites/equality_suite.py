"""Speculative output against plain output, token for token, through the service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.running.bench_prompts import Prompt, load
from bench.running.bench_service import service
from bench.running.texts import Decoded, decode


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    num_prompts: int = 225,
    max_tokens: int = 64,
    temperatures: Sequence[float] = (0.0, 0.8),
    is_quick: bool = False,
) -> list[dict[str, Any]]:
    """One row a temperature."""
    if is_quick:
        num_prompts, max_tokens = 10, 24
    prompts = load(num_prompts)
    rows = []
    with service(target, draft) as (_, client):
        for temperature in temperatures:
            plain = decode(
                client, prompts, temperature=temperature, max_tokens=max_tokens, enabled=False
            )
            ours = decode(
                client, prompts, temperature=temperature, max_tokens=max_tokens, enabled=True
            )
            rows.append(
                {
                    "temperature": temperature,
                    "prompts": len(prompts),
                    "max_tokens": max_tokens,
                    "tokens": ours.num_tokens,
                    "different": differences(prompts, plain, ours),
                    "near_ties_plain": plain.near_ties,
                    "near_ties_speculative": ours.near_ties,
                    "tokens_per_pass": ours.tokens_per_pass,
                    "accepted": sum(s.accepted for s in ours.stats),
                }
            )
    return rows


def differences(prompts: Sequence[Prompt], plain: Decoded, ours: Decoded) -> list[dict[str, Any]]:
    """Prompts whose outputs differ, where, and whether a near tie was met there or before."""
    found = []
    for prompt, a, b, stats in zip(prompts, plain.texts, ours.texts, ours.stats, strict=True):
        if a != b:
            place = next(
                (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y),
                min(len(a), len(b)),
            )
            found.append({"prompt": prompt.id, "at": place, "near_ties": stats.near_ties})
    return found
