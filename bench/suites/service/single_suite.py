"""One stream: tokens a second against plain decoding by the same engine and against transformers' `generate`.

One thread for each model. transformers runs once with the target's thread alone and once with as many threads as both our
models have together. Everything is measured by turns: each run is one of ours plainly, one speculatively, and one of each way of
`generate`. Parts are targets of different costs, see `bench.running.targets`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from bench.figures.cpu import Cpu
from bench.figures.passes import passes, traced
from bench.figures.turn import in_turn
from bench.ideals.baseline import MODES
from bench.ideals.efficiency import efficiency
from bench.ideals.law import Text, replay
from bench.report import where
from bench.report.rows import spread as spread_of
from bench.running.asked import target_cost
from bench.running.bench_prompts import Prompt, spread
from bench.running.bench_service import DRAFTER, TARGET, service
from bench.running.child import Child
from bench.running.targets import MAX_CONTEXT, BenchTarget, prepared
from bench.running.texts import Decoded, decode, differences
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.client import Client
from outrider.cluster.start.launch import RunningService

KEYS = ("part", "temperature")
"""What tells rows apart."""

CHOICES = {"parts": target_cost}
"""What its options may say."""

ROOM = {"max_context": MAX_CONTEXT, "num_slots": 4}
"""Deep models have many keys and values; one stream needs few."""

THREADS = {"one": 1, "all": 2}
"""How many threads transformers gets: as many as our target, and as many as target and drafter together."""

BASELINE_S = 600.0
"""Bound on one run of transformers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much to decode. Slow targets decode less: what counts is the number of passes."""

    num_prompts: int
    max_tokens: int
    runs: int


SIZES = {
    "shipped": Size(num_prompts=10, max_tokens=64, runs=5),
    "12": Size(num_prompts=10, max_tokens=64, runs=3),
    "25": Size(num_prompts=10, max_tokens=48, runs=3),
    "60": Size(num_prompts=5, max_tokens=48, runs=3),
}
"""Sizes that end within ten minutes for each part and temperature."""

QUICK = Size(num_prompts=2, max_tokens=24, runs=1)
"""Enough to see that it works."""


@dataclass(slots=True)
class _Turns:
    """What the runs of one way of decoding gave."""

    rates: list[float] = field(default_factory=list)
    decode_rates: list[float] = field(default_factory=list)
    outside: list[dict[str, float]] = field(default_factory=list)
    pass_ms: list[dict[str, float]] = field(default_factory=list)


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    parts: Sequence[str] = ("shipped", "12", "25", "60"),
    temperatures: Sequence[float] = (0.0, 0.8),
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each target and temperature, as they come."""
    for part in parts:
        size = QUICK if is_quick else SIZES.get(part, SIZES["60"])
        with prepared(target, part) as model, ExitStack() as stack:
            running, client = stack.enter_context(service(model.model, draft, both=ROOM))
            baseline = stack.enter_context(Child("bench.ideals.baseline"))
            baseline.ask(
                {
                    "target": resolve_model(model.model).location,
                    "draft": resolve_model(draft).location,
                },
                timeout_s=BASELINE_S,
            )
            for temperature in temperatures:
                yield _measure(
                    running,
                    client,
                    baseline,
                    model,
                    draft,
                    temperature=temperature,
                    size=size,
                    runs=runs or size.runs,
                )


def _measure(
    running: RunningService,
    client: Client,
    baseline: Child,
    target: BenchTarget,
    draft: str,
    *,
    temperature: float,
    size: Size,
    runs: int,
) -> dict[str, Any]:
    """All ways by turns, after one of each to warm up; equal outputs checked first."""
    prompts = spread(size.num_prompts)
    ids = [prompt_ids(client, prompt) for prompt in prompts]
    orders = {
        (name, mode): {
            "mode": mode,
            "threads": threads,
            "temperature": temperature,
            "max_tokens": size.max_tokens,
            "prompts": ids,
        }
        for name, threads in THREADS.items()
        for mode in MODES
    }

    def ours(enabled: bool) -> Decoded:
        return decode(
            client, prompts, temperature=temperature, max_tokens=size.max_tokens, enabled=enabled
        )

    plain, speculative = ours(False), ours(True)
    different = differences(prompts, plain, speculative)
    # One of each to warm up; when greedy, their outputs must be ours.
    few = [ids[0]]
    theirs = [
        baseline.ask({**order, "prompts": few}, timeout_s=BASELINE_S)["tokens"][0]
        for order in orders.values()
    ]
    unequal = [
        f"{mode}, {name}"
        for (name, mode), tokens in zip(orders, theirs, strict=True)
        if not temperature and tuple(tokens) != plain.texts[0]
    ]
    turns = {False: _Turns(), True: _Turns()}
    rates: dict[tuple[str, str], list[float]] = {key: [] for key in orders}
    ways: list[bool | tuple[str, str]] = [False, True, *orders]
    for number in range(runs):
        for way in in_turn(ways, number):
            if isinstance(way, tuple):
                rates[way].append(baseline.ask(orders[way], timeout_s=BASELINE_S)["tokens_per_s"])
                continue
            before = Cpu.of(running)
            result = ours(way)
            _book(turns[way], result, before, Cpu.of(running))
            if way:
                speculative = result
    timelines = {enabled: traced(client, partial(ours, enabled))[1] for enabled in (False, True)}
    stretch = {way: passes(found, drafter=DRAFTER) for way, found in timelines.items()}
    replayed = replay(
        draft,
        [
            Text(prompt=tokens, output=output, seed=prompt.id)
            for tokens, output, prompt in zip(ids, speculative.texts, prompts, strict=True)
        ],
        temperature=temperature,
        max_context=MAX_CONTEXT,
    )
    decode_speed_up = ratio(turns[True].decode_rates, turns[False].decode_rates)
    stats = speculative.stats
    rounds, plain_passes = sum(s.rounds for s in stats), sum(s.plain_passes for s in stats)
    return {
        "part": target.part,
        "target": target.label,
        "layers": target.layers,
        "temperature": temperature,
        "prompts": size.num_prompts,
        "max_tokens": size.max_tokens,
        "runs": runs,
        "different": different,
        "transformers_different": unequal,
        "near_ties": speculative.near_ties,
        "plain_tokens_per_s": median(turns[False].rates),
        "tokens_per_s": median(turns[True].rates),
        "spread": spread_of(turns[True].rates),
        "speed_up": ratio(turns[True].rates, turns[False].rates),
        "decode_speed_up": decode_speed_up,
        "tokens_per_pass": speculative.tokens_per_pass,
        "hit_rate": rounds / max(rounds + plain_passes, 1),
        "bytes_per_token": speculative.bytes_per_token,
        "cpu_outside_ms_per_round": medians(turns[True].outside),
        "pass_ms": medians(turns[True].pass_ms),
        "plain_pass_ms": medians(turns[False].pass_ms).get(TARGET, 0.0),
        "waiting_s_share": sum(s.draft_wait_s for s in speculative.timings) / speculative.total_s,
        "transformers": {
            name: {
                mode: {
                    "tokens_per_s": median(rates[name, mode]),
                    "ours_over": ratio(turns[True].rates, rates[name, mode]),
                    "plain_over": ratio(turns[False].rates, rates[name, mode]),
                }
                for mode in MODES
            }
            for name in THREADS
        },
        **efficiency(
            decode_speed_up,
            plain=stretch[False],
            pipelined=stretch[True],
            tokens_per_pass=tokens_per_tree_pass(speculative),
            replayed=replayed,
            target=target,
            round_trip_s=0.0,
        ),
        "time": {"speculative": where.told(timelines[True], unit_s=stretch[False].plain_s)},
    }


def _book(turns: _Turns, result: Decoded, before: Cpu, after: Cpu) -> None:
    rounds = sum(s.rounds + s.plain_passes for s in result.stats)
    turns.rates.append(result.tokens_per_s)
    turns.decode_rates.append(result.num_tokens / result.decode_s)
    turns.outside.append(after.outside_ms(before, rounds))
    turns.pass_ms.append(after.pass_ms(before))


def tokens_per_tree_pass(decoded: Decoded) -> float:
    """Mean tokens of a pass over candidates."""
    rounds = sum(s.rounds for s in decoded.stats)
    accepted = sum(s.accepted for s in decoded.stats)
    return 1.0 + accepted / rounds if rounds else 1.0


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the ratios, turn by turn."""
    return median([a / b for a, b in zip(ours, theirs, strict=True)])


def medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each key that all rows have."""
    common = set(rows[0]).intersection(*rows) if rows else set()
    return {key: median([row[key] for row in rows]) for key in sorted(common)}


def prompt_ids(client: Client, prompt: Prompt) -> list[int]:
    """The tokens of a prompt, as the service makes them."""
    request = prompt.request()
    if prompt.text is not None:
        return list(client.tokenize(prompt.text))
    return list(client.tokenize(messages=request["messages"]))
