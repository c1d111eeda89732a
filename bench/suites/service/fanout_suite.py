"""What it costs to bring commits from a target to clients: processor time of the coordinator and of the client a session-round.

A session-round is one commit of one streaming request, from the target's message to an event of the client's stream. Target,
coordinator and client are processes; the target is scripted (`bench.running.fanout_target`), the other two are the product.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

from bench.running.asked import requests_at_once
from bench.running.bench_prompts import load
from bench.running.child import Child
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.cluster.text import text_tokenizer

KEYS = ("part", "streams")
"""What tells rows apart."""

CHOICES = {"parts": requests_at_once}
"""What its options may say."""

STREAMS = (1, 16, 64)
"""Requests at once."""

PARTS: Mapping[str, Mapping[str, Any]] = {
    "drafters at work": {"tokens": 3, "period_s": 0.010},
    "log-probabilities": {"tokens": 3, "period_s": 0.010, "sampling": {"logprobs": 0}},
    "flat out": {"tokens": 1, "period_s": 0.0},
}
"""Tokens a commit and seconds between commits; 0: the next as soon as the last is written, plain decoding without a model."""


def run(
    *, parts: Sequence[str] | None = None, runs: int | None = None, is_quick: bool = False
) -> Iterator[dict[str, Any]]:
    """One row for each part and number of requests.

    Args:
        parts: Numbers of requests at once.
        runs: Of each.
        is_quick: Short ones.
    """
    folder = resolve_model("demo:target").location
    codec = text_tokenizer.load(folder)
    text = " ".join(prompt.text for prompt in load() if prompt.text)
    special = min(codec.special_ids)
    ids = [
        token
        for token in codec.encode(text, add_special_tokens=False)
        if token not in codec.special_ids
    ]
    config = {"targets": [{"name": "target-0", "model": "demo:target"}]}
    with ExitStack() as stack:
        target = stack.enter_context(Child("bench.running.fanout_target"))
        address = target.ask({"text": ids, "eos": special})["address"]
        coordinator = stack.enter_context(Child("bench.running.host"))
        order = {"config": config, "name": "coordinator", "host": "127.0.0.1"}
        served = coordinator.ask({**order, "targets": [address], "drafters": []})["address"]
        client = stack.enter_context(Child("bench.running.fanout_client"))
        client.ask({"do": "connect", "address": served})
        for part, how in PARTS.items():
            for streams in (int(level) for level in parts or STREAMS):
                rows = [
                    _once(target, coordinator, client, streams, is_quick=is_quick, **how)
                    for _ in range(runs or (1 if is_quick else 5))
                ]
                yield {
                    "part": part,
                    "streams": streams,
                    "tokens": how["tokens"],
                    "period_s": how["period_s"],
                    "runs": len(rows),
                    **{name: median([row[name] for row in rows]) for name in rows[0]},
                }


def _once(
    target: Child,
    coordinator: Child,
    client: Child,
    streams: int,
    *,
    tokens: int,
    period_s: float,
    sampling: Mapping[str, Any] | None = None,
    is_quick: bool,
) -> dict[str, float]:
    """Opens so many streams, and measures a few seconds of commits to all of them."""
    client.ask({"do": "start", "streams": streams, "sampling": sampling or {}})
    target.ask({"do": "open", "sessions": streams})
    seconds = 0.5 if is_quick else 3.0
    rounds = round(seconds / period_s) if period_s else max(20, round(seconds * 8000 / streams))
    warm = max(5, rounds // 10)
    commit = {"do": "commit", "tokens": tokens, "period_s": period_s}
    target.ask({**commit, "rounds": warm})
    before = client.ask({"do": "until", "tokens": streams * tokens * warm})
    coordinator_s = -_cpu_s(coordinator.ask("costs"))
    began_s = time.perf_counter()
    target.tell({**commit, "rounds": rounds})
    after = client.ask(
        {"do": "until", "tokens": streams * tokens * (warm + rounds)}, timeout_s=300.0
    )
    wall_s = time.perf_counter() - began_s
    coordinator_s += _cpu_s(coordinator.ask("costs"))
    target.answer(timeout_s=60.0)
    target.ask({"do": "end"})
    client.ask({"do": "end"})
    session_rounds = streams * rounds
    return {
        "coordinator_us": 1e6 * coordinator_s / session_rounds,
        "client_us": 1e6 * (_cpu_s(after) - _cpu_s(before)) / session_rounds,
        "rounds_an_event": session_rounds / (after["events"] - before["events"]),
        "tokens_per_s": session_rounds * tokens / wall_s,
    }


def _cpu_s(costs: Mapping[str, Any]) -> float:
    """Seconds of processor time of all threads."""
    return float(sum(costs["cpu_s"].values()))
