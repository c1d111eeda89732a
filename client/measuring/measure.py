"""Sends many prompts through a service and takes the times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from outrider.client.async_client import AsyncClient
from outrider.client.measuring.figures import RequestSample
from outrider.client.measuring.measuring_prompts import Prompt
from outrider.client.messages.request_options import SamplingOptions, SpeculationOptions
from outrider.client.messages.results import Completion, Event, TextChunk


async def measure(
    client: AsyncClient,
    prompts: Sequence[Prompt],
    *,
    seed: int,
    sampling: SamplingOptions,
    speculation: SpeculationOptions,
    concurrency: int,
    model: str = "",
    on_sample: Callable[[RequestSample], None] = lambda sample: None,
    on_event: Callable[[Event], None] = lambda event: None,
) -> tuple[tuple[RequestSample, ...], float]:
    """Runs each prompt once. Returns the samples in the order of the prompts, and the seconds of the whole.

    Args:
        client: What to send through.
        prompts: What to send.
        seed: Of every request.
        sampling: Everything else that decides the tokens; a prompt may have another `max_tokens`.
        speculation: How to be fast.
        concurrency: How many requests run at once, at least 1.
        model: The target model.
        on_sample: Is told of each request that is done.
        on_event: Gets every event of every request, once its time is taken.

    Raises:
        OutriderError: A request failed; the others are cancelled.
    """
    samples: dict[int, RequestSample] = {}
    waiting = iter(enumerate(prompts))
    options = replace(sampling, seed=seed)

    async def work() -> None:
        for number, prompt in waiting:
            samples[number] = await _measure_one(
                client,
                number,
                prompt,
                options=options,
                speculation=speculation,
                model=model,
                on_event=on_event,
            )
            on_sample(samples[number])

    started_s = time.perf_counter()
    tasks = [asyncio.create_task(work()) for _ in range(min(concurrency, len(prompts)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    wall_s = time.perf_counter() - started_s
    return tuple(samples[number] for number in sorted(samples)), wall_s


async def _measure_one(
    client: AsyncClient,
    number: int,
    prompt: Prompt,
    *,
    options: SamplingOptions,
    speculation: SpeculationOptions,
    model: str,
    on_event: Callable[[Event], None],
) -> RequestSample:
    """Runs one prompt and takes its times."""
    if prompt.max_tokens is not None:
        options = replace(options, max_tokens=prompt.max_tokens)
    ids: list[int] = []
    first_s = last_s = 0.0
    in_first = 0
    completion: Completion | None = None
    started_s = time.perf_counter()
    async with client.stream(
        prompt.text,
        tokens=prompt.tokens,
        messages=prompt.messages,
        model=model,
        sampling=options,
        speculation=speculation,
    ) as stream:
        async for event in stream:
            match event:
                case TextChunk() if event.tokens:
                    last_s = time.perf_counter() - started_s
                    if not ids:
                        first_s, in_first = last_s, len(event.tokens)
                    ids.extend(token.id for token in event.tokens)
                case Completion():
                    completion = event
            on_event(event)
    assert completion is not None, "a stream without a completion raises"
    later = len(ids) - in_first
    return RequestSample(
        prompt=number,
        category=prompt.category,
        seed=options.seed or 0,
        token_ids=tuple(ids),
        first_token_s=first_s,
        total_s=time.perf_counter() - started_s,
        token_s=(last_s - first_s) / later if later else None,
        stats=completion.speculation,
    )
