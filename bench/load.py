"""Many requests at once: throughput, time to first token and time per token, against plain decoding and transformers.

A closed loop: so many requests run at any moment, each followed by the next prompt, until all are done. Ways by turns: the same
engine with speculation off, with it on, and transformers' continuous batching with one thread on the same weights, prompts and
numbers of requests. Parts are numbers of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from statistics import fmean
from typing import Any

from bench import where
from bench.child import Child
from bench.cpu import Cpu
from bench.passes import traced
from bench.prompts import Prompt, load
from bench.results import median
from bench.service import service
from bench.single import BASELINE_S, medians, prompt_ids, ratio
from bench.targets import MAX_CONTEXT, prepared
from outrider.actors.engine.source import resolve_model
from outrider.client import AsyncClient, Client, SamplingOptions, SpeculationOptions
from outrider.client.figures import Figures, Sample, differences, figures, percentile
from outrider.client.measure import measure
from outrider.client.prompts import Prompt as Request
from outrider.cluster.launch import RunningService

KEYS = ("part", "concurrency", "temperature")
"""What tells rows apart."""

LEVELS = ("1", "2", "4", "8", "16", "32", "64")
"""Requests at once."""

ROOM = {"max_context": MAX_CONTEXT, "num_slots": 64}
"""Every request has a slot, so that nothing but speed tells the levels apart."""

WAYS = ("plain", "speculative")
"""Of ours."""

REQUEST_S = 600.0
"""Bound on one request."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    part: str = "shipped",
    parts: Sequence[str] | None = None,
    temperatures: Sequence[float] = (0.0,),
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each number of requests and temperature.

    Args:
        target: The target model.
        draft: The draft model.
        part: Which target cost, see `bench.targets`.
        parts: Requests at once.
        temperatures: Which.
        runs: Of each way.
        is_quick: Few and short requests.
    """
    levels = [int(level) for level in parts or (("1", "16") if is_quick else LEVELS)]
    prompts = load()
    with prepared(target, part) as model, ExitStack() as stack:
        running, client = stack.enter_context(
            service(model.model, draft, both=ROOM, service={"max_waiting": 256})
        )
        baseline = stack.enter_context(Child("bench.baseline"))
        baseline.ask(
            {
                "target": resolve_model(model.model).location,
                "draft": resolve_model(draft).location,
            },
            timeout_s=BASELINE_S,
        )
        _warm_up(running.address, prompts)
        for level in levels:
            for temperature in temperatures:
                row = _measure(
                    running,
                    client,
                    baseline,
                    _cycle(prompts, requests_of(level, is_quick=is_quick)),
                    concurrency=level,
                    temperature=temperature,
                    max_tokens=16 if is_quick else 48,
                    runs=runs or (1 if is_quick else 3),
                )
                yield {"part": part, "target": model.label, "layers": model.layers, **row}


def requests_of(concurrency: int, *, is_quick: bool) -> int:
    """How many requests make one run: at least two for each that run at once."""
    return max(4, concurrency) if is_quick else max(8, 2 * concurrency)


def _cycle(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    return [prompts[number % len(prompts)] for number in range(count)]


def _requests(prompts: Sequence[Prompt]) -> list[Request]:
    return [
        Request(
            category=prompt.category,
            text=prompt.text,
            messages=tuple(prompt.request()["messages"]) if prompt.text is None else None,
        )
        for prompt in prompts
    ]


def _warm_up(address: str, prompts: Sequence[Prompt]) -> None:
    for enabled in (False, True):
        _ours(address, prompts[:4], enabled=enabled, concurrency=4, temperature=0.0, max_tokens=16)


def _ours(
    address: str,
    prompts: Sequence[Prompt],
    *,
    enabled: bool,
    concurrency: int,
    temperature: float,
    max_tokens: int,
) -> tuple[tuple[Sample, ...], Figures]:
    async def go() -> tuple[tuple[Sample, ...], float]:
        async with AsyncClient(address, timeout_s=REQUEST_S) as client:
            return await measure(
                client,
                _requests(prompts),
                seed=1,
                sampling=SamplingOptions(
                    temperature=temperature, max_tokens=max_tokens, ignore_eos=True
                ),
                speculation=SpeculationOptions(enabled=enabled),
                concurrency=concurrency,
            )

    samples, wall_s = asyncio.run(go())
    return samples, figures(samples, wall_s=wall_s)


def _measure(
    running: RunningService,
    client: Client,
    baseline: Child,
    prompts: Sequence[Prompt],
    *,
    concurrency: int,
    temperature: float,
    max_tokens: int,
    runs: int,
) -> dict[str, Any]:
    """The ways by turns."""
    order = {
        "concurrency": concurrency,
        "threads": 1,
        "max_tokens": max_tokens,
        "prompts": [prompt_ids(client, prompt) for prompt in prompts],
    }
    address = running.address
    rates: dict[str, list[float]] = {way: [] for way in (*WAYS, "transformers")}
    told: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    theirs: list[dict[str, Any]] = []
    outside: list[dict[str, float]] = []
    different: list[dict[str, Any]] = []
    by_way: dict[str, tuple[Sample, ...]] = {}

    def once(way: str) -> tuple[tuple[Sample, ...], Figures]:
        return _ours(
            address,
            prompts,
            enabled=way == "speculative",
            concurrency=concurrency,
            temperature=temperature,
            max_tokens=max_tokens,
        )

    for _ in range(runs):
        for way in WAYS:
            before = Cpu.of(running)
            by_way[way], result = once(way)
            rates[way].append(result.tokens_per_s)
            told[way].append(_numbers(result))
            if way == "speculative":
                rounds = result.rounds + result.plain_passes
                outside.append(Cpu.of(running).outside_ms(before, rounds))
        different = [asdict(d) for d in differences(by_way["plain"], by_way["speculative"])]
        answer = baseline.ask(order, timeout_s=BASELINE_S)
        if "unavailable" not in answer:
            rates["transformers"].append(answer["tokens_per_s"])
        theirs.append(answer)
    row: dict[str, Any] = {
        "concurrency": concurrency,
        "temperature": temperature,
        "requests": len(prompts),
        "max_tokens": max_tokens,
        "runs": runs,
        "different": different,
        "plain": medians(told["plain"]),
        "speculative": medians(told["speculative"]),
        "speed_up": ratio(rates["speculative"], rates["plain"]),
        "cpu_outside_ms_per_round": medians(outside),
        "transformers": continuous_figures(theirs),
        "time": {
            way: where.told(traced(client, partial(once, way))[1], unit_s=0.0) for way in WAYS
        },
    }
    if len(rates["transformers"]) == runs:
        row["over_transformers"] = ratio(rates["speculative"], rates["transformers"])
        row["transformers"]["different"] = [
            number
            for number, (ours, tokens) in enumerate(
                zip(by_way["plain"], theirs[-1]["tokens"], strict=True)
            )
            if not temperature and list(ours.token_ids) != tokens
        ]
    return row


def _numbers(result: Figures) -> dict[str, float]:
    return {
        "tokens_per_s": result.tokens_per_s,
        "first_token_p50_s": result.first_token_p50_s or 0.0,
        "first_token_p99_s": result.first_token_p99_s or 0.0,
        "token_p50_s": result.token_p50_s or 0.0,
        "token_p99_s": result.token_p99_s or 0.0,
        "tokens_per_pass": result.mean_tokens_per_pass,
        "candidate_rounds_share": result.rounds / max(result.rounds + result.plain_passes, 1),
        "bytes_per_token": result.wire_bytes_per_token,
    }


def continuous_figures(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the runs of transformers' continuous batching, or why there are none."""
    reasons = [answer["unavailable"] for answer in answers if "unavailable" in answer]
    if reasons:
        return {"unavailable": reasons[0]}
    found = {
        "tokens_per_s": median([answer["tokens_per_s"] for answer in answers]),
        "token_mean_s": median([fmean(answer["token_s"]) for answer in answers]),
    }
    for name in ("first_token_s", "token_s"):
        for share, label in ((0.5, "p50"), (0.99, "p99")):
            values = [percentile(answer[name], share) or 0.0 for answer in answers]
            found[f"{name.removesuffix('_s')}_{label}_s"] = median(values)
    return found
