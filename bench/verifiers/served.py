"""Every verifier through the running service: what a request is told about its own rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.running.bench_prompts import Prompt, spread
from bench.running.bench_service import pair_config
from bench.verifiers.rounds import SHAPES, TOKEN_ONLY
from bench.verifiers.tally import ratio_of
from bench.verifiers.verdicts import FROZEN
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.trees.level_shapes import LevelShape
from outrider.client import Client, SamplingOptions, SpeculationOptions
from outrider.client import Verifier as Name
from outrider.client.messages.results import SpeculationStats
from outrider.cluster.config.schema import parse_config
from outrider.cluster.start.launch import start_service

GREEDY = (
    "coupled",
    "speculative_sampling",
    "mcsd_without_replacement",
)
"""Verifiers asked at temperature 0, where all give the same text from equal trees."""


def run(
    *, target: str, draft: str, temperatures: Sequence[float], is_quick: bool
) -> Iterator[dict[str, Any]]:
    """One row for each temperature and pace. Drafters never rest: what is compared is verification, not whether it pays."""
    num_prompts, max_tokens = (2, 8) if is_quick else (10, 40)
    prompts = spread(num_prompts)
    for is_lockstep in (True, False):
        settings = pair_config(target, draft, lockstep=is_lockstep)
        settings["speculation"]["adaptive"] = False
        config = parse_config(settings, source="the benchmark")
        with start_service(config) as running, Client(running.address) as client:
            _ask(client, prompts[:1], "coupled", SHAPES[0], 0.8, 8)  # to warm up
            for temperature in temperatures:
                yield {
                    "layer": "service, in lock-step" if is_lockstep else "service",
                    "temperature": temperature,
                    "target": target,
                    "draft": draft,
                    "prompts": num_prompts,
                    "max_tokens": max_tokens,
                    "cells": [
                        _ask(client, prompts, verifier, shape, temperature, max_tokens)
                        for verifier, shape in _pairs(temperature)
                        if is_lockstep or shape == _usual(verifier)
                    ],
                }


def _usual(verifier: str) -> LevelShape:
    """The shape that is also asked for while drafter and target run at their own pace."""
    if verifier in TOKEN_ONLY:
        return SHAPES[2]
    return SHAPES[0] if VERIFIERS[verifier].is_chain_only else SHAPES[1]


def _pairs(temperature: float) -> Iterator[tuple[str, LevelShape]]:
    for verifier in (*TOKEN_ONLY, *FROZEN) if temperature > 0.0 else GREEDY:
        for shape in SHAPES:
            is_chain = shape.num_nodes == shape.depth
            if is_chain or not VERIFIERS[verifier].is_chain_only:
                yield verifier, shape


def _ask(
    client: Client,
    prompts: Sequence[Prompt],
    verifier: str,
    shape: LevelShape,
    temperature: float,
    max_tokens: int,
) -> dict[str, Any]:
    is_frozen = verifier in FROZEN
    speculation = SpeculationOptions(
        verifier=Name(str(verifier)),
        max_nodes=shape.num_nodes,
        max_depth=shape.depth if is_frozen else None,
        tree_shape=str(shape) if is_frozen else None,
    )
    found: list[SpeculationStats] = []
    for prompt in prompts:
        result = client.generate(
            **prompt.request(),
            sampling=SamplingOptions(
                temperature=temperature, max_tokens=max_tokens, seed=prompt.id, ignore_eos=True
            ),
            speculation=speculation,
            timeout_s=300.0,
        )
        found.append(result.completion.speculation)
    return {"verifier": str(verifier), "shape": str(shape), **summed(found)}


def summed(found: Sequence[SpeculationStats]) -> dict[str, Any]:
    """Tokens per pass, acceptance and bytes of some requests, with errors from request to request."""
    passes = [s.rounds + s.plain_passes for s in found]
    tokens, error = ratio_of([(s.accepted + n, n) for s, n in zip(found, passes, strict=True)])
    rounds = sum(s.rounds for s in found)
    row: dict[str, Any] = {
        "passes": sum(passes),
        "rounds": rounds,
        "tokens_per_pass": tokens,
        "tokens_per_pass_error": error,
    }
    if rounds:
        accepted, reached = (
            sum(sum(s.accepted_by_depth) for s in found),
            sum(sum(s.accepted_by_depth[:-1]) + s.rounds for s in found),
        )
        row |= {
            "tokens_per_round": 1.0 + sum(s.accepted for s in found) / rounds,
            "acceptance": accepted / max(reached, 1),
            "bytes_per_round": sum(s.wire_bytes for s in found) / rounds,
            "messages_per_round": sum(s.candidate_messages for s in found) / rounds,
        }
    return row
