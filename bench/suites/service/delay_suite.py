"""Pipelined against lock-step while the network between drafter and target delays: each way by 0 to 80 ms.

Two services stand side by side, one pipelined, one in lock-step, and are asked by turns, prompt by prompt; plain decoding is the pipelined one's
target without candidates. The delay is added in the transport, by `bench.network.relay`; `bench.suites.service.netns_suite` does the same between network
namespaces. The point "quarter" is a quarter of a pass each way: a round trip of half a pass.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any

from bench.figures.passes import passes, traced
from bench.figures.turn import balanced
from bench.ideals.efficiency import efficiency, lockstep_ideal
from bench.ideals.law import Text, replay
from bench.network.between import Between, Betweens, over_relay
from bench.report.where import told
from bench.running.asked import milliseconds, target_cost
from bench.running.assembly import Assembly
from bench.running.bench_prompts import Prompt, spread
from bench.running.bench_service import DRAFTER, pair_config
from bench.running.targets import MAX_CONTEXT, BenchTarget, prepared
from bench.running.texts import Decoded, decode, differences
from bench.suites.service.single_suite import ROOM, prompt_ids, ratio, tokens_per_tree_pass
from outrider.client import Client

SETTLE_S = 0.05
"""Seconds between two ways, beside the round trip."""

KEYS = ("delay_ms", "temperature")
"""What tells rows apart."""

QUARTER = "quarter"
"""The delay that makes a round trip of half a pass."""

DELAYS_MS = ("0", "1", "5", QUARTER, "20", "80")
"""One way, in milliseconds."""

CHOICES = {"part": target_cost, "parts": milliseconds(QUARTER)}
"""What its options may say."""

WAYS = ("plain", "pipelined", "lockstep")
"""What is compared."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    part: str = "25",
    parts: Sequence[str] | None = None,
    temperatures: Sequence[float] = (0.0,),
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each delay and temperature.

    Args:
        target: The target model.
        draft: The draft model.
        part: Which target cost, see `bench.running.targets`.
        parts: Delays in milliseconds, one way, or `quarter`.
        temperatures: Those that are measured.
        runs: Of each way.
        is_quick: Few prompts and delays.
    """
    yield from measure(
        over_relay,
        target=target,
        draft=draft,
        part=part,
        parts=parts,
        temperatures=temperatures,
        runs=runs,
        is_quick=is_quick,
    )


def measure(
    between: Betweens,
    *,
    target: str,
    draft: str,
    part: str,
    parts: Sequence[str] | None,
    temperatures: Sequence[float],
    runs: int | None,
    is_quick: bool,
) -> Iterator[dict[str, Any]]:
    """`run`, whatever lies between."""
    delays = parts or (("0", "20") if is_quick else DELAYS_MS)
    with prepared(target, "shipped" if is_quick else part) as model, ExitStack() as stack:
        services = [
            _Service(stack, model, draft, between, is_lockstep=is_lockstep)
            for is_lockstep in (False, True)
        ]
        for delay in delays:
            delay_s = model.pass_s / 4.0 if delay == QUARTER else 1e-3 * float(delay)
            for service in services:
                service.between.set_delay(delay_s)
            for temperature in temperatures:
                row = _measure(
                    services,
                    model,
                    draft,
                    settle_s=SETTLE_S + 2.0 * delay_s,
                    temperature=temperature,
                    num_prompts=2 if is_quick else 5,
                    max_tokens=24 if is_quick else 48,
                    runs=runs or (1 if is_quick else 3),
                )
                yield {"delay_ms": delay, "added_ms": 1e3 * delay_s, **row}
            for service in services:
                service.between.set_delay(0.0)


class _Service:
    """One of the two, with what lies between its drafter and target, and a client."""

    def __init__(
        self,
        stack: ExitStack,
        target: BenchTarget,
        draft: str,
        between: Betweens,
        *,
        is_lockstep: bool,
    ) -> None:
        self.between: Between = stack.enter_context(between())
        config = pair_config(target.model, draft, lockstep=is_lockstep, both=ROOM)
        self.assembly = stack.enter_context(Assembly(config, **self.between.options))
        self.client = stack.enter_context(Client(self.assembly.address))


def _measure(
    services: Sequence[_Service],
    target: BenchTarget,
    draft: str,
    *,
    settle_s: float,
    temperature: float,
    num_prompts: int,
    max_tokens: int,
    runs: int,
) -> dict[str, Any]:
    """The three ways by turns, after one of each to warm up; equal outputs checked first.

    Each prompt is decoded all three ways before the next, because the machine's pace changes from one second to another. Between
    any two nothing runs for `settle_s`, in which drafters hear that the one before is over.
    """
    pipelined, lockstep = services
    prompts = spread(num_prompts)
    asked = {"plain": pipelined, "pipelined": pipelined, "lockstep": lockstep}

    def once(way: str, some: Sequence[Prompt] = prompts) -> Decoded:
        time.sleep(settle_s)
        return decode(
            asked[way].client,
            some,
            temperature=temperature,
            max_tokens=max_tokens,
            enabled=way != "plain",
        )

    last = {way: once(way) for way in WAYS}
    different = {
        way: differences(prompts, last["plain"], last[way]) for way in ("pipelined", "lockstep")
    }
    round_trip_s = pipelined.between.round_trip_s(pipelined.assembly)
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    whole_rates: dict[str, list[float]] = {way: [] for way in WAYS}
    num_bytes = pipelined.between.bytes_so_far()
    for number in range(runs):
        last = {way: Decoded() for way in WAYS}
        for place, prompt in enumerate(prompts):
            for way in balanced(WAYS, number * len(prompts) + place):
                last[way].add(once(way, [prompt]))
        for way in WAYS:
            rates[way].append(last[way].num_tokens / last[way].decode_s)
            whole_rates[way].append(last[way].tokens_per_s)
    num_bytes = pipelined.between.bytes_so_far() - num_bytes
    stretch, time_of = {}, {}
    for way in WAYS:
        # What follows compares passes with rounds, so both are of this run.
        last[way], timeline = traced(asked[way].client, partial(once, way))
        stretch[way] = passes(timeline, drafter=DRAFTER)
        time_of[way] = told(timeline, unit_s=stretch["plain"].plain_s)
    speed_up = {way: ratio(rates[way], rates["plain"]) for way in WAYS}
    found = efficiency(
        speed_up["pipelined"],
        plain=stretch["plain"],
        pipelined=stretch["pipelined"],
        tokens_per_pass=tokens_per_tree_pass(last["pipelined"]),
        replayed=replay(
            draft,
            _texts(pipelined.client, prompts, last["pipelined"]),
            temperature=temperature,
            max_context=MAX_CONTEXT,
        ),
        target=target,
        round_trip_s=round_trip_s,
    )
    return {
        "target": target.label,
        "layers": target.layers,
        "between": pipelined.between.name,
        "temperature": temperature,
        "prompts": num_prompts,
        "max_tokens": max_tokens,
        "runs": runs,
        "different": different,
        "plain_tokens_per_s": median(whole_rates["plain"]),
        "tokens_per_s": {way: median(whole_rates[way]) for way in WAYS},
        "speed_up": {way: ratio(whole_rates[way], whole_rates["plain"]) for way in WAYS[1:]},
        "decode_speed_up": {way: speed_up[way] for way in WAYS[1:]},
        "rates": rates,
        "over_lockstep": ratio(rates["pipelined"], rates["lockstep"]),
        "tokens_per_pass": {way: last[way].tokens_per_pass for way in WAYS[1:]},
        "rounds": {way: sum(s.rounds for s in last[way].stats) for way in WAYS[1:]},
        "plain_passes": {way: sum(s.plain_passes for s in last[way].stats) for way in WAYS[1:]},
        "stale_share": stale_share(last["pipelined"]),
        "round_trip_ms": 1e3 * round_trip_s,
        "payload_bytes_per_token": last["pipelined"].bytes_per_token,
        "bytes_per_token": num_bytes / (runs * num_prompts * max_tokens),
        "lockstep_ideal": lockstep_ideal(
            found,
            levels=stretch["lockstep"].num_drafts
            / max(sum(s.rounds for s in last["lockstep"].stats), 1),
            round_trip=found["round_trip"],
        ),
        **found,
        "time": {way: time_of[way] for way in WAYS[1:]},
    }


def stale_share(decoded: Decoded) -> float:
    """Candidates that came too late or for another text, of all that came."""
    proposed = sum(s.proposed for s in decoded.stats)
    return sum(s.stale for s in decoded.stats) / proposed if proposed else 0.0


def _texts(client: Client, prompts: Sequence[Prompt], decoded: Decoded) -> list[Text]:
    return [
        Text(prompt=prompt_ids(client, prompt), output=output, seed=prompt.id)
        for prompt, output in zip(prompts, decoded.texts, strict=True)
    ]
