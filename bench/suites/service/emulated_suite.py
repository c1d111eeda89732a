"""The whole service at the speed of devices that are not there: what our own processor time leaves of them.

Target and drafter are laws on emulated devices (docs/emulation.md): passes take what a profile says, asleep. So what is measured is
the service alone - scheduling, messages, drawing, streams - while target, drafter, coordinator and client share this machine's cores.
Throughput is told in units of what the device alone would decode plainly: requests / seconds of a pass with a row for each. All
requests run at once, and only the time counts in which all of them do. Beside it: tokens a round, microseconds of processor time for
each round of a session, the ideal of `actors/speculation/ideal.py` and eta. Speculative texts are first found equal to plain ones.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bench.figures.emulated_run import Window, run_window
from bench.ideals.emulated_ideal import Pair, ideal_of
from bench.report.rows import spread as spread_of
from bench.running.asked import Check, among
from bench.running.bench_service import DRAFTER, TARGET
from outrider.actors.engine.profiles import DEVICE_PREFIX
from outrider.actors.engine.tables.trigram_laws import VOCAB_SIZE, check_law
from outrider.cluster.config.schema import parse_config
from outrider.cluster.start.launch import RunningService, start_service

KEYS = ("profile", "draft_profile", "law", "drafting", "drafters", "level")
"""What tells rows apart."""

LEVELS = (1, 4, 16, 64, 128)
"""Requests at once."""

PROFILES = ("10ms+10us:1ms+3us", "25ms+20us:1.5ms+5us", "h100-8b", "h100x4-70b")
"""Target's and drafter's."""

LAWS = ("agree85",)
"""How often the drafter is right: at 85 a tree of 16 nodes gives 6 tokens a pass, at 70 four."""

DRAFTING = {"always": False, "adaptive": True}
"""Whether drafters are made to work (`adaptive: false`), or rest where the service finds that faster."""

CHOICES: dict[str, Check] = {
    "profiles": lambda word: Pair.of(word, LAWS[0]),
    "laws": lambda word: check_law(f"{word}/draft"),
    "drafting": among(DRAFTING),
}
"""What its options may say."""

TEMPERATURE = 0.8

MAX_TOKENS = 256
"""Of each request."""

PROMPT_TOKENS = 16
"""Of each prompt."""

MAX_CONTEXT = 1024


def run(
    *,
    levels: Sequence[int] | None = None,
    profiles: Sequence[str] | None = None,
    laws: Sequence[str] | None = None,
    drafting: Sequence[str] | None = None,
    drafters: int = 1,
    runs: int | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each profile, law, way of drafting, and number of requests.

    Args:
        levels: Requests at once.
        profiles: The target's profile, and behind a colon the drafter's; without, the one that `--emulate` would take.
        laws: Names of laws.
        drafting: `always`, `adaptive` or both.
        drafters: Replicas of the drafter.
        runs: Of each way.
        is_quick: One profile, few requests, one run.
    """
    levels = levels or ((1, 4) if is_quick else LEVELS)
    profiles = profiles or (PROFILES[:1] if is_quick else PROFILES)
    pairs = [Pair.of(profile, law) for law in laws or LAWS for profile in profiles]
    for pair in pairs:
        for way in drafting or (("always",) if is_quick else tuple(DRAFTING)):
            config = config_of(pair, max(levels), way, drafters)
            with start_service(parse_config(config, source="the benchmark")) as service:
                check_equal(service)
                for level in levels:
                    row = measure(service, pair, level, runs or (1 if is_quick else 3))
                    keys = {"drafting": way, "drafters": drafters, "level": level}
                    yield {**pair.told(), **keys, **row}


def config_of(
    pair: Pair, level: int, way: str, drafters: int, verifier: str = "coupled"
) -> dict[str, Any]:
    """What is served: the pair's laws on its devices, with room for so many requests."""
    room = {"num_slots": max(16, level), "max_context": MAX_CONTEXT, "num_threads": 1}
    return {
        "service": {"listen": "127.0.0.1:0", "prefix_reuse": False, "max_waiting": 256},
        "targets": [
            {
                "name": TARGET,
                "model": f"law:{pair.law}",
                "device": DEVICE_PREFIX + pair.target.name,
                **room,
            }
        ],
        "drafters": [
            {
                "name": DRAFTER,
                "model": f"law:{pair.law}/draft",
                "device": DEVICE_PREFIX + pair.draft.name,
                "replicas": drafters,
                **room,
            }
        ],
        "speculation": {"adaptive": DRAFTING[way], "verifier": verifier},
    }


def prompts_of(count: int) -> list[list[int]]:
    """Token ids of prompts; the position of each is its seed."""
    rng = np.random.default_rng(0)
    prompts: list[list[int]] = rng.integers(VOCAB_SIZE, size=(count, PROMPT_TOKENS)).tolist()
    return prompts


def _window(service: RunningService, level: int, *, enabled: bool, max_tokens: int) -> Window:
    return run_window(
        service,
        prompts_of(level),
        enabled=enabled,
        temperature=TEMPERATURE,
        max_tokens=max_tokens,
    )


def check_equal(service: RunningService) -> None:
    """Refuses to measure a service whose texts differ. Warms it up, too."""
    plain, fast = (_window(service, 4, enabled=enabled, max_tokens=96) for enabled in (False, True))
    if plain.outputs != fast.outputs:
        raise RuntimeError("speculative texts differ from plain ones; nothing was measured")


def measure(service: RunningService, pair: Pair, level: int, runs: int) -> dict[str, Any]:
    """Both ways by turns, and the ideal beside them."""
    ways: dict[bool, list[Window]] = {False: [], True: []}
    load = os.getloadavg()[0]
    for number in range(runs):
        for enabled in (False, True) if number % 2 == 0 else (True, False):
            ways[enabled].append(_window(service, level, enabled=enabled, max_tokens=MAX_TOKENS))
    unit = level / pair.pass_s(level, PROMPT_TOKENS + MAX_TOKENS // 2)
    plain, fast = (_told(ways[enabled], unit) for enabled in (False, True))
    return {
        "emulated": True,
        "unit_tokens_per_s": unit,
        "temperature": TEMPERATURE,
        "max_tokens": MAX_TOKENS,
        "runs": runs,
        "plain": plain,
        "speculative": fast,
        "speed_up": fast["units"] / plain["units"],
        "different": sum(
            one != other
            for one, other in zip(ways[False][0].outputs, ways[True][0].outputs, strict=True)
        ),
        "load_before": round(load, 2),
        **ideal_of(
            pair,
            level=level,
            units=fast["units"],
            texts=list(zip(prompts_of(level), ways[False][0].outputs, strict=True)),
            temperature=TEMPERATURE,
            max_context=MAX_CONTEXT,
        ),
    }


def _told(windows: Sequence[Window], unit: float) -> dict[str, Any]:
    units = [window.tokens_per_s / unit for window in windows]
    return {
        "units": statistics.median(units),
        "spread": spread_of(units),
        "tokens_per_s": statistics.median(window.tokens_per_s for window in windows),
        "tokens_per_round": statistics.median(
            window.stats.mean_tokens_per_pass for window in windows
        ),
        "window_s": statistics.median(window.seconds for window in windows),
        "cpu_us": {
            role: statistics.median(window.cpu_us[role] for window in windows)
            for role in windows[0].cpu_us
        },
    }
