"""Many requests at once: throughput, time to first token and time per token, against plain decoding and transformers.

A closed loop: so many requests run at any moment, each followed by the next prompt, until all are done. Ways by turns: the same
engine with speculation off, with it on, and transformers' continuous batching with one thread on the same weights, prompts and
numbers of requests. Parts are numbers of requests. Requests of equal length that begin together stay in step where each round gives
each a token, and have their prompts read together; those of mixed lengths come one by one whatever the way, as those of users do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any

from bench.figures.cpu import Cpu
from bench.figures.load_figures import continuous_figures, numbers
from bench.figures.passes import traced
from bench.figures.turn import balanced
from bench.ideals.law import Text, replay
from bench.ideals.load_ideal import crowd_passes, load_efficiency
from bench.report import where
from bench.report.rows import spread as spread_of
from bench.running.asked import among, requests_at_once, target_cost
from bench.running.bench_prompts import Prompt, load
from bench.running.bench_service import service
from bench.running.child import Child
from bench.running.crowd import SEED, crowd, requests_of
from bench.running.targets import MAX_CONTEXT, BenchTarget, prepared, timed_alone
from bench.suites.service.single_suite import BASELINE_S, medians, prompt_ids, ratio
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.client import Client
from outrider.client.measuring.figures import Figures, RequestSample, differences
from outrider.cluster.start.launch import RunningService

KEYS = ("part", "concurrency", "temperature", "lengths")
"""What tells rows apart."""

LENGTHS = ("equal", "mixed")
"""Of the answers: all the same, or from a third to five thirds of that."""

CHOICES = {"part": target_cost, "parts": requests_at_once, "lengths": among(LENGTHS)}
"""What its options may say."""

LEVELS = ("1", "2", "4", "8", "16", "32", "64")
"""Requests at once."""

ROOM = {"max_context": MAX_CONTEXT, "num_slots": 64}
"""Every request has a slot, so that nothing but speed tells the levels apart."""

WAYS = ("plain", "speculative")
"""Of ours."""

TRANSFORMERS = "transformers"
"""Its continuous batching."""

REPLAYED = 16
"""Texts that the acceptance law is taken from, at most."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    part: str = "shipped",
    parts: Sequence[str] | None = None,
    lengths: Sequence[str] = LENGTHS,
    temperatures: Sequence[float] = (0.0,),
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each number of requests, lengths of answers and temperature.

    Args:
        target: The target model.
        draft: The draft model.
        part: Which target cost, see `bench.running.targets`.
        parts: Requests at once.
        lengths: `equal`, `mixed` or both.
        temperatures: Those that are measured.
        runs: Of each way.
        is_quick: Few and short requests.
    """
    levels = [int(level) for level in parts or (("1", "16") if is_quick else LEVELS)]
    prompts = load()
    with prepared(target, part) as model, ExitStack() as stack:
        running, client = stack.enter_context(
            service(model.model, draft, both=ROOM, service={"max_waiting": 256})
        )
        baseline = stack.enter_context(Child("bench.ideals.baseline"))
        baseline.ask(
            {
                "target": resolve_model(model.model).location,
                "draft": resolve_model(draft).location,
            },
            timeout_s=BASELINE_S,
        )
        drafter = timed_alone(draft)
        for enabled in (False, True):
            crowd(
                running.address,
                prompts[:4],
                enabled=enabled,
                concurrency=4,
                temperature=0.0,
                lengths=[16] * 4,
            )
        for level, kind in product(levels, lengths):
            for temperature in temperatures:
                row = _measure(
                    running,
                    client,
                    baseline,
                    model,
                    drafter,
                    _cycle(prompts, requests_of(level, is_quick=is_quick)),
                    concurrency=level,
                    temperature=temperature,
                    max_tokens=16 if is_quick else 48,
                    kind=kind,
                    runs=runs or (1 if is_quick else 3),
                )
                yield {"part": part, "target": model.label, "layers": model.layers, **row}


def _cycle(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    return [prompts[number % len(prompts)] for number in range(count)]


def lengths_of(kind: str, count: int, max_tokens: int) -> list[int]:
    """Tokens of each answer: one of `LENGTHS`, with this mean."""
    spread = 0 if kind == "equal" else 2 * max_tokens // 3
    steps = [2 * number / max(count - 1, 1) - 1 for number in range(count)]
    found = [max_tokens + round(spread * step) for step in steps]
    random.Random(SEED).shuffle(found)
    return found


def _measure(
    running: RunningService,
    client: Client,
    baseline: Child,
    target: BenchTarget,
    drafter: BenchTarget,
    prompts: Sequence[Prompt],
    *,
    concurrency: int,
    temperature: float,
    max_tokens: int,
    kind: str,
    runs: int,
) -> dict[str, Any]:
    """The ways by turns."""
    ids = [prompt_ids(client, prompt) for prompt in prompts]
    lengths = lengths_of(kind, len(prompts), max_tokens)
    order = {"concurrency": concurrency, "threads": 1, "lengths": lengths, "prompts": ids}
    rates: dict[str, list[float]] = {way: [] for way in (*WAYS, TRANSFORMERS)}
    told: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    theirs: list[dict[str, Any]] = []
    outside: list[dict[str, float]] = []
    different: list[dict[str, Any]] = []
    by_way: dict[str, tuple[RequestSample, ...]] = {}

    def once(way: str) -> tuple[tuple[RequestSample, ...], Figures]:
        return crowd(
            running.address,
            prompts,
            enabled=way == "speculative",
            concurrency=concurrency,
            temperature=temperature,
            lengths=lengths,
        )

    for way in WAYS:
        # Not counted: whether drafters are worth their work at this load is found out here.
        once(way)
    for number in range(runs):
        for way in balanced((*WAYS, TRANSFORMERS), number):
            if way == TRANSFORMERS:
                answer = baseline.ask(order, timeout_s=BASELINE_S)
                if "unavailable" not in answer:
                    rates[way].append(answer["tokens_per_s"])
                theirs.append(answer)
                continue
            before = Cpu.of(running)
            by_way[way], result = once(way)
            rates[way].append(result.tokens_per_s)
            told[way].append(numbers(result))
            if way == "speculative":
                rounds = result.rounds + result.plain_passes
                outside.append(Cpu.of(running).outside_ms(before, rounds))
        different = [asdict(d) for d in differences(by_way["plain"], by_way["speculative"])]
    timelines = {way: traced(client, partial(once, way))[1] for way in WAYS}
    passes = {way: crowd_passes(timelines[way]) for way in WAYS}
    speed_up = ratio(rates["speculative"], rates["plain"])
    row: dict[str, Any] = {
        "concurrency": concurrency,
        "temperature": temperature,
        "requests": len(prompts),
        "max_tokens": max_tokens,
        "lengths": kind,
        "runs": runs,
        "different": different,
        "plain": medians(told["plain"]),
        "speculative": medians(told["speculative"]),
        "rates": rates,
        "speed_up": speed_up,
        "spread": spread_of(
            [a / b for a, b in zip(rates["speculative"], rates["plain"], strict=True)]
        ),
        "cpu_outside_ms_per_round": medians(outside),
        "transformers": continuous_figures(theirs),
        "time": {way: where.told(timelines[way], unit_s=0.0) for way in WAYS},
        **load_efficiency(
            speed_up,
            concurrency=concurrency,
            plain=passes["plain"],
            pipelined=passes["speculative"],
            replayed=replay(
                drafter.model,
                [
                    Text(prompt=prompt, output=sample.token_ids, seed=SEED)
                    for prompt, sample in list(zip(ids, by_way["plain"], strict=True))[:REPLAYED]
                ],
                temperature=temperature,
                max_context=MAX_CONTEXT,
            ),
            target=target,
            draft=drafter,
        ),
    }
    if len(rates[TRANSFORMERS]) == runs:
        row["over_transformers"] = ratio(rates["speculative"], rates[TRANSFORMERS])
        row["transformers"]["different"] = [
            number
            for number, (ours, tokens) in enumerate(
                zip(by_way["plain"], theirs[-1]["tokens"], strict=True)
            )
            if not temperature and list(ours.token_ids) != tokens
        ]
    return row
