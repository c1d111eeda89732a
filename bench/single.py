"""One stream: tokens a second against plain decoding by the same engine and against transformers' `generate`.

One thread for each model. The target is the shipped one as it is, and the shipped one deepened with decoder layers that
leave its output unchanged (`actors/train/deepen.py`), so that a pass costs more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cpu import Cpu
from bench.decode import Decoded, decode
from bench.equality import differences
from bench.prompts import Prompt, spread
from bench.results import median
from bench.results import spread as spread_of
from bench.service import service
from outrider.actors.engine.source import resolve_model
from outrider.client import Client
from outrider.cluster.launch import RunningService

DEEP_LAYERS = 40
"""Layers of the deepened target: about 12 ms a pass on the machine this was written on, the shipped one about 1.5 ms."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    num_prompts: int = 10,
    max_tokens: int = 64,
    runs: int = 5,
    temperatures: Sequence[float] = (0.0, 0.8),
    deep_layers: int = DEEP_LAYERS,
) -> list[dict[str, Any]]:
    """One row for each target and temperature."""
    from outrider.actors.train.deepen import deepen_folder

    prompts = spread(num_prompts)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        deep = Path(folder) / "deep"
        deepen_folder(Path(resolve_model(target).location), deep, num_layers=deep_layers)
        for label, model in (("as shipped", target), (f"{deep_layers} layers", str(deep))):
            with service(model, draft) as (running, client):
                ids = [_prompt_ids(client, prompt) for prompt in prompts]
                measured = [
                    _measure(running, client, prompts, temperature, max_tokens, runs)
                    for temperature in temperatures
                ]
            for temperature, row in zip(temperatures, measured, strict=True):
                baseline = transformers(
                    model, draft, ids, temperature=temperature, max_tokens=max_tokens, runs=runs
                )
                rows.append(
                    {"target": label, "temperature": temperature, **row, "transformers": baseline}
                )
    return rows


def _measure(
    running: RunningService,
    client: Client,
    prompts: Sequence[Prompt],
    temperature: float,
    max_tokens: int,
    runs: int,
) -> dict[str, Any]:
    """Plain and speculative runs by turns, after one of each to warm up; equal outputs checked first."""

    def once(enabled: bool) -> Decoded:
        return decode(
            client, prompts, temperature=temperature, max_tokens=max_tokens, enabled=enabled
        )

    plain, ours = once(False), once(True)
    different = differences(prompts, plain, ours)
    rates: dict[bool, list[float]] = {False: [], True: []}
    decode_rates: dict[bool, list[float]] = {False: [], True: []}
    outside: list[dict[str, float]] = []
    passes: list[dict[str, float]] = []
    for _ in range(runs):
        for enabled in (False, True):
            before = Cpu.of(running)
            result = once(enabled)
            after = Cpu.of(running)
            rates[enabled].append(result.tokens_per_s)
            decode_rates[enabled].append(result.num_tokens / result.decode_s)
            if enabled:
                ours = result
                rounds = sum(s.rounds + s.plain_passes for s in result.stats)
                outside.append(after.outside_ms(before, rounds))
                passes.append(after.pass_ms(before))
            else:
                plain_pass_ms = after.pass_ms(before)["target"]
    return {
        "prompts": len(prompts),
        "max_tokens": max_tokens,
        "runs": runs,
        "different": different,
        "near_ties": ours.near_ties,
        "plain_tokens_per_s": median(rates[False]),
        "tokens_per_s": median(rates[True]),
        "spread": spread_of(rates[True]),
        "speed_up": median([b / a for a, b in zip(rates[False], rates[True], strict=True)]),
        "decode_speed_up": median(
            [b / a for a, b in zip(decode_rates[False], decode_rates[True], strict=True)]
        ),
        "tokens_per_pass": ours.tokens_per_pass,
        "bytes_per_token": ours.bytes_per_token,
        "cpu_outside_ms_per_round": {k: median([c[k] for c in outside]) for k in outside[0]},
        "pass_ms": {k: median([c[k] for c in passes]) for k in passes[0]},
        "plain_pass_ms": plain_pass_ms,
        "waiting_s_share": sum(s.draft_wait_s for s in ours.timings) / ours.total_s,
    }


def _prompt_ids(client: Client, prompt: Prompt) -> list[int]:
    request = prompt.request()
    if prompt.text is not None:
        return list(client.tokenize(prompt.text))
    return list(client.tokenize(messages=request["messages"]))


def transformers(
    target: str,
    draft: str,
    prompts: list[list[int]],
    *,
    temperature: float,
    max_tokens: int,
    runs: int,
    threads: int = 1,
    modes: Sequence[str] = ("plain", "assisted"),
) -> dict[str, float]:
    """Tokens a second of transformers' `generate`, by mode, in a process of its own."""
    request = {
        "target": resolve_model(target).location,
        "draft": resolve_model(draft).location,
        "prompts": prompts,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "runs": runs,
        "threads": threads,
        "modes": list(modes),
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.baseline"],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(done.stdout)
    return {mode: median(rates) for mode, rates in answer["tokens_per_s"].items()}
