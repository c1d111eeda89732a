"""What a verifier costs the service at the speed of devices that are not there: as `emulated`, with another default verifier.

Verifiers of frozen trees make drafters and target wait for each other, and their walks, draws and laws are the target's own processor
time. Their texts follow the target's law and are not those of plain decoding, so only texts of verifiers that share its noise are
compared; docs/verifiers.md says how the law is proven.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.ideals.emulated_ideal import Pair
from bench.running.asked import among
from bench.suites.service import emulated_suite
from bench.suites.service.emulated_suite import (
    DRAFTING,
    LAWS,
    check_equal,
    config_of,
    measure,
)
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.cluster.config.schema import parse_config
from outrider.cluster.start.launch import start_service

KEYS = ("verifier", "profile", "draft_profile", "law", "drafting", "level")
"""What tells rows apart."""

LEVELS = (1, 4, 16)
"""Requests at once."""

PROFILES = ("h100-8b",)

CHOICES = {**emulated_suite.CHOICES, "parts": among(VERIFIERS)}
"""What its options may say."""

CHOSEN = ("coupled", "speculative_sampling", "traversal")
"""Shared noise; a chain; a tree with all of its rows."""


def run(
    *,
    parts: Sequence[str] = CHOSEN,
    levels: Sequence[int] = LEVELS,
    profiles: Sequence[str] = PROFILES,
    laws: Sequence[str] = LAWS,
    drafting: Sequence[str] = tuple(DRAFTING),
    runs: int = 3,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each verifier, profile, law, way of drafting, and number of requests.

    Args:
        parts: Verifiers.
        levels: Requests at once.
        profiles: As of `emulated`.
        laws: Names of laws.
        drafting: `always`, `adaptive` or both.
        runs: Of each way.
        is_quick: One request, one run.
    """
    levels, runs = ((1,), 1) if is_quick else (levels, runs)
    for pair in (Pair.of(profile, law) for law in laws for profile in profiles):
        for way in drafting:
            for verifier in parts:
                config = config_of(pair, max(levels), way, 1, verifier)
                with start_service(parse_config(config, source="the benchmark")) as service:
                    shares_noise = VERIFIERS[verifier].shares_noise
                    if shares_noise:
                        check_equal(service)
                    for level in levels:
                        row = measure(service, pair, level, runs)
                        if not shares_noise:
                            del row["different"]  # not compared
                        yield {
                            "verifier": verifier,
                            **pair.told(),
                            "drafting": way,
                            "drafters": 1,
                            "level": level,
                            **row,
                        }
