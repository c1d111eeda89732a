"""Who drafts, in virtual time: all drafters, the least busy one, the one that a bandit finds. Two drafters of one law, of which one is led astray.

Rows are the same on every machine as long as `prices.yaml` is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.running.asked import among
from outrider.cluster.simulate.compare import difference, session_rounds
from outrider.cluster.simulate.compare import run as run_mode
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulate_command import quiet
from outrider.cluster.simulate.simulated_service import SimulatedMode

KEYS = ("part", "way")
"""What tells rows apart."""

WAYS: dict[str, dict[str, Any]] = {
    "all": {},
    "least_busy": {"drafters_at_work": 1},
    "ucb": {"selector": "ucb"},
}
"""What requests ask for."""

SECONDS = 20.0
"""Virtual. Twice as many where drafters change."""

ASTRAY = {"at_s": 0, "what": "misleads", "who": "b"}

PARTS: dict[str, dict[str, Any]] = {
    "one is good": {"faults": [ASTRAY]},
    "which is good changes": {
        "seconds": 2 * SECONDS,
        "faults": [ASTRAY | {"seconds": SECONDS}, ASTRAY | {"at_s": SECONDS, "who": "a"}],
    },
    "both are good": {},
    "one is good, both on one GPU": {"faults": [ASTRAY], "gpu": "card"},
    "both are good, on one GPU": {"gpu": "card"},
}
"""What is different from two drafters on devices of their own."""

CHOICES = {"parts": among(PARTS)}
"""What its options may say."""

CLIENTS = 16
"""Requests at a time."""


def run(*, parts: Sequence[str] | None = None, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row a part and way.

    Args:
        parts: Which; None: all.
        is_quick: The first one, and short.
    """
    for part in list(parts or PARTS)[: 1 if is_quick else None]:
        with quiet():
            plain = run_mode(scenario(part, "all", is_quick=is_quick), SimulatedMode.PLAIN)
        for way in WAYS:
            asked = scenario(part, way, is_quick=is_quick)
            with quiet():
                done = run_mode(asked, SimulatedMode.PIPELINED)
            drafted_s = sum(done.device_s[one.name] for one in asked.drafters)
            yield {
                "part": part,
                "way": way,
                "speed_up": done.tokens / plain.tokens,
                "tokens_per_pass": sum(map(sum, (log.tokens for log in done.logs.values())))
                / max(session_rounds(done), 1),
                "draft_us_per_token": 1e6 * drafted_s / done.tokens,
                "bytes_per_token": done.wire_bytes / done.tokens,
                "equal": not difference(plain, done),
            }


def scenario(part: str, way: str, *, is_quick: bool = False) -> Scenario:
    """One run."""
    told = dict(PARTS[part])
    place = {"gpu": told.pop("gpu")} if "gpu" in told else {}
    drafter = {"model": "law:agree85/draft", "profile": "2ms+5us", "slots": CLIENTS, **place}
    seconds = told.pop("seconds", SECONDS)
    return Scenario.model_validate(
        {
            "name": f"{part}, {way}",
            "seconds": seconds / 20 if is_quick else seconds,
            "targets": [
                {"name": "t", "model": "law:agree85", "profile": "10ms+10us", "slots": CLIENTS}
            ],
            "drafters": [{"name": name, **drafter} for name in ("a", "b")],
            "load": [{"clients": CLIENTS, "tokens": 256, "prompt": 16}],
            **told,
            **WAYS[way],
        }
    )
