"""One draft model with exits beside three targets of different size, all in one service: a smaller one, the shipped one, and that one deepened.

Ways are exits that all tokens leave at, leaving by confidence, and leaving by confidence as deep as is worth it for the target, which is the
default; beside them the ordinary draft model. Each is measured for each target by itself, then the default for all three targets at once.
Plain decoding before and after is the baseline, and every output is compared with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bench.running.asked import target_cost
from bench.running.bench_prompts import Prompt, spread
from bench.running.targets import MAX_CONTEXT, prepared
from bench.running.texts import Decoded, decode
from outrider.client import Client, SpeculationOptions
from outrider.cluster.config.schema import parse_config
from outrider.cluster.start.launch import start_service

KEYS = ("part", "target", "temperature")
"""What tells rows apart."""

CHOICES = {"part": target_cost}
"""What its options may say."""

SMALLER = "demo:draft"
"""A target smaller than the shipped one, with its tokenizer."""

WAYS: dict[str, dict[str, Any]] = {
    "exit 1": {"exit": 1},
    "exit 2": {"exit": 2},
    "exit 3": {"exit": 3},
    "by confidence": {"adaptive": False},
    "by confidence and cost": {},
}
"""Options of the drafters, by the names in the table."""

DEFAULT = "by confidence and cost"
ORDINARY = "autoregressive"


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:sorted",
    part: str = "25",
    temperatures: Sequence[float] = (0.0, 0.8),
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each target and temperature.

    Args:
        target: The target in the middle.
        draft: The draft model with exits.
        part: Cost of the deepened target, see `bench.running.targets`.
        temperatures: Those that are measured.
        runs: Prompts.
        is_quick: Two short prompts.
    """
    prompts = spread(2 if is_quick else runs or 10)
    max_tokens = 16 if is_quick else 48
    with prepared(target, part) as deep:
        models = {"smaller": SMALLER, "shipped": target, deep.label: deep.model}
        room = {"num_threads": 1, "max_context": MAX_CONTEXT, "num_slots": 4}
        slugs = {way: way.replace(" ", "-") for way in WAYS}
        config = {
            "service": {"listen": "127.0.0.1:0", "prefix_reuse": False},
            "targets": [
                {"name": f"target-{at}", "model": model, **room}
                for at, model in enumerate(models.values())
            ],
            "drafters": [
                {"name": slugs[way], "method": "sorted", "model": draft, "options": options, **room}
                for way, options in WAYS.items()
            ]
            + [{"name": ORDINARY, "model": "demo:draft", **room}],
            # Whoever drafts is at work all the time, also where it does not pay.
            "speculation": {"adaptive": False},
        }
        names = {f"target-{at}": label for at, label in enumerate(models)}
        ways = {**{slug: way for way, slug in slugs.items()}, ORDINARY: ORDINARY}
        with (
            start_service(parse_config(config, source="the benchmark")) as running,
            Client(running.address) as client,
        ):
            for temperature in temperatures:
                ask = _Asking(client, prompts, temperature, max_tokens)
                rows = {name: _row(ask, name, ways) for name in names}
                _together(ask, slugs[DEFAULT], rows)
                for name, row in rows.items():
                    yield {
                        "part": part,
                        "target": names[name],
                        "temperature": temperature,
                        "prompts": len(prompts),
                        "max_tokens": max_tokens,
                        **row,
                    }


class _Asking:
    def __init__(
        self, client: Client, prompts: Sequence[Prompt], temperature: float, max_tokens: int
    ) -> None:
        self._client, self._prompts = client, prompts
        self._temperature, self._max_tokens = temperature, max_tokens

    def __call__(self, model: str, drafter: str = "") -> Decoded:
        speculation = SpeculationOptions(
            enabled=bool(drafter), drafters=(drafter,) if drafter else ()
        )
        return decode(
            self._client,
            self._prompts,
            temperature=self._temperature,
            max_tokens=self._max_tokens,
            enabled=bool(drafter),
            speculation=speculation,
            model=model,
        )


def _row(ask: _Asking, model: str, ways: dict[str, str]) -> dict[str, Any]:
    """All ways for one target, one after another."""
    ask(model)  # The first time does not count: whatever is done once is done.
    plain = ask(model)
    found = {way: ask(model, drafter) for drafter, way in ways.items()}
    after = ask(model)
    pace = (plain.num_tokens + after.num_tokens) / (plain.total_s + after.total_s)
    return {
        "plain_tokens_per_s": pace,
        "texts": plain.texts,
        "ways": {way: _told(plain, one, pace) for way, one in found.items()},
    }


def _together(ask: _Asking, drafter: str, rows: dict[str, dict[str, Any]]) -> None:
    """All targets at once, plainly and with the one drafter; texts are replaced by how many differ."""
    with ThreadPoolExecutor(len(rows)) as pool:
        for name in ("", drafter):
            began = time.perf_counter()
            found = dict(zip(rows, pool.map(partial(ask, drafter=name), rows), strict=True))
            seconds = time.perf_counter() - began
            for model, one in found.items():
                told = rows[model]["together"] = rows[model].get("together", {})
                key = "drafted" if name else "plain"
                told[key] = {"tokens_per_s": one.tokens_per_s, "all_s": seconds}
                if name:
                    told["different"] = _different(rows[model]["texts"], one)
    for row in rows.values():
        del row["texts"]


def _told(plain: Decoded, ours: Decoded, pace: float) -> dict[str, Any]:
    return {
        "different": _different(plain.texts, ours),
        "tokens_per_pass": ours.tokens_per_pass,
        "speed_up": ours.tokens_per_s / pace,
    }


def _different(texts: Sequence[tuple[int, ...]], ours: Decoded) -> int:
    return sum(one != other for one, other in zip(texts, ours.texts, strict=True))
