"""Many requests at once: a closed loop through a running service, so many at any moment, each followed by the next prompt."""

from __future__ import annotations

from collections.abc import Sequence

from bench.running.bench_prompts import Prompt
from outrider.client import AsyncClient, SamplingOptions, SpeculationOptions
from outrider.client.connection import event_loop
from outrider.client.measuring.figures import Figures, RequestSample, figures
from outrider.client.measuring.measure import measure
from outrider.client.measuring.measuring_prompts import Prompt as Request

SEED = 1
"""Of every request."""

REQUEST_S = 600.0
"""Bound on one request."""


def requests_of(concurrency: int, *, is_quick: bool) -> int:
    """How many requests make one run: at least four for each that run at once, and more where few do, for runs of some seconds."""
    if is_quick:
        return max(4, concurrency)
    return max(16, min(8 * concurrency, 64), 4 * concurrency)


def crowd(
    address: str,
    prompts: Sequence[Prompt],
    *,
    enabled: bool,
    concurrency: int,
    temperature: float,
    lengths: Sequence[int],
) -> tuple[tuple[RequestSample, ...], Figures]:
    """Decodes every prompt once, all of them to their full length.

    Args:
        address: Of the service.
        prompts: What to decode.
        enabled: Whether with speculation.
        concurrency: How many requests run at once.
        temperature: Of sampling.
        lengths: Tokens of each; end-of-text is an ordinary token.

    Returns:
        A sample for each prompt, in their order, and what they amount to.
    """

    async def go() -> tuple[tuple[RequestSample, ...], float]:
        async with AsyncClient(address, timeout_s=REQUEST_S) as client:
            return await measure(
                client,
                [_request(*one) for one in zip(prompts, lengths, strict=True)],
                seed=SEED,
                sampling=SamplingOptions(temperature=temperature, ignore_eos=True),
                speculation=SpeculationOptions(enabled=enabled),
                concurrency=concurrency,
            )

    samples, wall_s = event_loop.run(go())
    return samples, figures(samples, wall_s=wall_s)


def _request(prompt: Prompt, max_tokens: int) -> Request:
    return Request(
        category=prompt.category,
        text=prompt.text,
        messages=tuple(prompt.request()["messages"]) if prompt.text is None else None,
        max_tokens=max_tokens,
    )
