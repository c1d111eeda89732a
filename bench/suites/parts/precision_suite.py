"""How often texts differ, by the type of the weights: speculative against plain, and plain against plain beside others.

Both are compared with plain decoding of one request alone. The second shows what the type itself does: every engine that batches
gives other texts in half precision than one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.running.asked import among
from bench.running.bench_prompts import Prompt, load
from bench.running.bench_service import service
from bench.running.texts import Decoded, decode, differences
from outrider.client import Client

KEYS = ("dtype", "temperature")

DTYPES = ("float32", "float16", "bfloat16")

CHOICES = {"parts": among(DTYPES)}
"""What its options may say."""

NEIGHBOURS = 3
"""Other requests in the plain passes that are compared with those of a request alone."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    num_prompts: int = 24,
    max_tokens: int = 100,
    temperatures: Sequence[float] = (0.0, 0.8),
    parts: Sequence[str] = DTYPES,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row a type and temperature."""
    if is_quick:
        num_prompts, max_tokens = 8, 24
    prompts = load(num_prompts)
    for dtype in parts:
        with service(target, draft, both={"dtype": dtype}) as (_, client):
            for temperature in temperatures:
                alone = _decode(client, prompts, temperature, max_tokens, enabled=False)
                ours = _decode(client, prompts, temperature, max_tokens, enabled=True)
                beside = _beside(client, prompts, temperature, max_tokens)
                yield {
                    "dtype": dtype,
                    "temperature": temperature,
                    "prompts": len(prompts),
                    "max_tokens": max_tokens,
                    "tokens": ours.num_tokens,
                    "different": differences(prompts, alone, ours),
                    "different_beside": differences(prompts, alone, beside),
                    "near_ties": alone.near_ties,
                    "tokens_per_pass": ours.tokens_per_pass,
                }


def _decode(
    client: Client, prompts: Sequence[Prompt], temperature: float, max_tokens: int, *, enabled: bool
) -> Decoded:
    return decode(client, prompts, temperature=temperature, max_tokens=max_tokens, enabled=enabled)


def _beside(
    client: Client, prompts: Sequence[Prompt], temperature: float, max_tokens: int
) -> Decoded:
    """Plain decoding of several prompts at a time."""
    lanes = [prompts[lane :: NEIGHBOURS + 1] for lane in range(NEIGHBOURS + 1)]
    with ThreadPoolExecutor(len(lanes)) as pool:
        runs = list(
            pool.map(
                lambda lane: _decode(client, lane, temperature, max_tokens, enabled=False), lanes
            )
        )
    whole = Decoded()
    for place in range(len(prompts)):
        lane, index = runs[place % len(runs)], place // len(runs)
        whole.texts.append(lane.texts[index])
        whole.stats.append(lane.stats[index])
    return whole
