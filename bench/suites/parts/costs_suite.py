"""What everything beside the models costs: processor time by component, bytes, memory.

The actors run as plain processes (`bench.running.assembly`), so that no other process's work is counted; the drafter's stream goes
through the relay, which counts the bytes that really travel. Parts are numbers of requests at once. "A round" is one target
pass of one session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from bench.figures.cpu import model_cpu
from bench.network.relay import Relay
from bench.running.asked import requests_at_once, target_cost
from bench.running.assembly import Assembly
from bench.running.bench_prompts import Prompt, load
from bench.running.bench_service import DRAFTER, TARGET, pair_config
from bench.running.crowd import crowd, requests_of
from bench.running.targets import MAX_CONTEXT, prepared
from bench.suites.service.single_suite import medians
from outrider.client.measuring.figures import Figures
from outrider.cluster.roster.roster import Role

KEYS = ("part", "concurrency", "enabled")
"""What tells rows apart."""

CHOICES = {"part": target_cost, "parts": requests_at_once}
"""What its options may say."""

LEVELS = ("1", "16")
"""Requests at once."""

PAGE_BYTES = 4096
"""What a minor page fault brings."""

ROLES = {TARGET: Role.TARGET, DRAFTER: Role.DRAFTER, "coordinator": Role.COORDINATOR}
"""Who is who."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    part: str = "25",
    parts: Sequence[str] | None = None,
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each number of requests, with speculation and without.

    Args:
        target: The target model.
        draft: The draft model.
        part: Which target cost, see `bench.running.targets`.
        parts: Requests at once.
        runs: Of each.
        is_quick: Few and short requests.
    """
    prompts = load()
    with prepared(target, "shipped" if is_quick else part) as model, ExitStack() as stack:
        relay = stack.enter_context(Relay())
        config = pair_config(model.model, draft, both={"max_context": MAX_CONTEXT, "num_slots": 16})
        assembly = stack.enter_context(Assembly(config, drafter_environment=relay.environment))
        for level in (int(level) for level in parts or LEVELS):
            chosen = prompts[: requests_of(level, is_quick=is_quick)]
            max_tokens = 16 if is_quick else 64
            for enabled in (False, True):
                _decode(assembly, chosen[:4], level, max_tokens, enabled=enabled)
                rows = [
                    _once(assembly, relay, chosen, level, max_tokens, enabled=enabled)
                    for _ in range(runs or (1 if is_quick else 3))
                ]
                yield {
                    "part": model.part,
                    "target": model.label,
                    "concurrency": level,
                    "enabled": enabled,
                    "requests": len(chosen),
                    "max_tokens": max_tokens,
                    "runs": len(rows),
                    **{
                        name: medians([row[name] for row in rows])
                        if isinstance(rows[0][name], dict)
                        else median([row[name] for row in rows])
                        for name in rows[0]
                    },
                }


def _decode(
    assembly: Assembly, prompts: Sequence[Prompt], level: int, max_tokens: int, *, enabled: bool
) -> Figures:
    return crowd(
        assembly.address,
        prompts,
        enabled=enabled,
        concurrency=level,
        temperature=0.0,
        lengths=[max_tokens] * len(prompts),
    )[1]


def _once(
    assembly: Assembly,
    relay: Relay,
    prompts: Sequence[Prompt],
    level: int,
    max_tokens: int,
    *,
    enabled: bool,
) -> dict[str, Any]:
    before, models = assembly.costs(), _models(assembly)
    bytes_before = relay.bytes_up + relay.bytes_down
    result = _decode(assembly, prompts, level, max_tokens, enabled=enabled)
    after, models_after = assembly.costs(), _models(assembly)
    rounds = result.rounds + result.plain_passes
    return {
        "rounds": rounds,
        "tokens_per_pass": result.mean_tokens_per_pass,
        "bytes_per_token": (relay.bytes_up + relay.bytes_down - bytes_before) / result.tokens,
        "payload_bytes_per_token": result.wire_bytes_per_token,
        "outside_ms_per_round": outside_ms(
            before,
            after,
            {name: models_after[name] - models[name] for name in models},
            rounds=rounds,
        ),
        "model_ms_per_round": {
            name: 1e3 * (models_after[name] - models[name]) / rounds for name in models
        },
        **memory(before, after, rounds=rounds),
    }


def _models(assembly: Assembly) -> dict[str, float]:
    return {
        name: model_cpu(ROLES[name], address)[0] for name, address in assembly.addresses.items()
    }


def outside_ms(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    models: Mapping[str, float],
    *,
    rounds: int,
) -> dict[str, float]:
    """Milliseconds of processor time for each round, by actor and thread, those in the model left out.

    Args:
        before: `bench.running.host.costs` of each actor.
        after: The same, later.
        models: Seconds that each actor's model took in between, which its worker thread spent.
        rounds: In between.
    """
    found: dict[str, float] = {}
    for name in before:
        for thread, seconds in after[name]["cpu_s"].items():
            took = seconds - before[name]["cpu_s"][thread]
            if thread == "worker":
                took -= models[name]
            found[f"{name} {thread}"] = 1e3 * took / rounds
    return found


def memory(
    before: Mapping[str, Any], after: Mapping[str, Any], *, rounds: int
) -> dict[str, dict[str, float]]:
    """What each round did to memory, by actor: KiB newly taken from the system, garbage collections, objects that stayed."""

    def grown(key: str, scale: float) -> dict[str, float]:
        return {name: scale * (after[name][key] - before[name][key]) / rounds for name in before}

    return {
        "fresh_kib_per_round": grown("page_faults", PAGE_BYTES / 1024),
        "collections_per_1000_rounds": grown("collections", 1000.0),
        "objects_kept_per_round": grown("blocks", 1.0),
    }
