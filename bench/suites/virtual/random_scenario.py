"""Scenarios drawn by chance: what nobody thought of when the grid and the scenarios of incidents were written. Pure: a number gives a scenario."""

from __future__ import annotations

import random
from typing import Any

from outrider.cluster.simulate.scenario import Scenario

KINDS = ("steady", "cores", "short", "gpu", "waves", "steps")
"""`cores` and `gpu`: all share the one or two cores of a machine, or one GPU; `steps`: the number of clients changes; `short`: requests of a few tokens."""

LAWS = (50, 70, 85, 90, 95)
"""Percentage of draws that are the drafter's first candidate."""

PASSES_MS = (3, 6, 10, 25, 60)
"""Of a target pass."""

SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5)
"""Of a draft pass, in target passes."""

ROUNDS = (600, 900)
"""Plain passes that a scenario lasts for."""


def kind_of(seed: int) -> str:
    """The kind of a scenario: each is one of so many seeds in a row."""
    return KINDS[seed % len(KINDS)]


def random_scenario(seed: int) -> Scenario:
    """The scenario of a seed.

    Args:
        seed: At least 0. Names of kind and seed are in the scenario's name.
    """
    draw, kind = random.Random(seed), kind_of(seed)
    pass_ms = draw.choice(PASSES_MS)
    seconds = 1e-3 * pass_ms * draw.choice(ROUNDS)
    clients = draw.choice((1, 1, 1, 2, 4, 8, 16))
    law = draw.choice(LAWS)
    target: dict[str, Any] = {
        "name": "t",
        "model": f"law:agree{law}",
        "profile": f"{pass_ms}ms+{draw.choice((5, 20, 100, 300, 50 * pass_ms))}us",
        "slots": 48,
    }
    drafters = _drafters(draw, pass_ms, law)
    load, waves = _asked(draw, kind, clients, seconds)
    return Scenario.model_validate(
        {
            "name": f"{kind}-{seed}",
            "seed": seed,
            "seconds": seconds,
            "prices": "measured" if kind == "cores" else draw.choice(("measured", "free")),
            "temperature": draw.choice((0.0, 0.8, 1.0)),
            **_shared(draw, kind, [target, *drafters]),
            "targets": [target],
            "drafters": drafters,
            "load": load,
            "waves": waves,
            "faults": _faults(draw, pass_ms, seconds) if draw.random() < 0.4 else [],
        }
    )


def _drafters(draw: random.Random, pass_ms: float, law: int) -> list[dict[str, Any]]:
    """One to three, the others of another speed than the first at times."""
    share = draw.choice(SHARES)
    drafters: list[dict[str, Any]] = []
    for number in range(draw.choice((1, 1, 1, 2, 3))):
        draft_ms = pass_ms * share * (draw.choice((0.5, 1, 1, 2)) if number else 1)
        link = {
            "latency_ms": draw.choice((0.05, 0.5, 2, 0.25 * pass_ms, 0.5 * pass_ms, 1.5 * pass_ms)),
            "jitter_ms": draw.choice((0, 0, 0.2, 0.2 * pass_ms)),
            "mbit_per_s": draw.choice((10_000, 1_000, 20)),
            "loss": draw.choice((0, 0, 0, 0.02)),
        }
        row_us = draft_ms * draw.choice((1, 3, 20))
        profile = f"{draft_ms:g}ms+{row_us:g}us"
        model = f"law:agree{law}/draft"
        drafters.append(
            {"name": f"d{number}", "model": model, "profile": profile, "slots": 48, "link": link}
        )
    return drafters


def _asked(
    draw: random.Random, kind: str, clients: int, seconds: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Loads and waves."""
    lengths = (5, 20, 40) if kind == "short" else (4000, 400, 100)
    asks = {"tokens": draw.choice(lengths), "prompt": draw.choice((8, 64, 300))}
    load: list[dict[str, Any]] = [{"clients": clients, **asks}]
    if kind == "steps":
        load.append({"at_s": 0.3 * seconds, "clients": draw.choice((1, 4, 24)), **asks})
        load.append({"at_s": 0.6 * seconds, "clients": draw.choice((1, 2, 8)), **asks})
    if kind != "waves":
        return load, []
    wave = {
        "at_s": 0.1 * seconds,
        "every_s": seconds / draw.choice((3, 6, 12)),
        "requests": draw.choice((2, 6, 16)),
        "tokens": draw.choice((20, 60)),
    }
    return load, [wave]


def _shared(draw: random.Random, kind: str, actors: list[dict[str, Any]]) -> dict[str, Any]:
    """Puts actors onto what they share. Returns what the scenario says of it."""
    if kind == "gpu":
        for actor in actors:
            actor["gpu"] = "card"
    if kind != "cores":
        return {}
    for actor in actors:
        actor |= {"machine": "box", "on_cores": True}
    return {"machines": {"box": draw.choice((1, 2))}, "coordinator_machine": "box"}


def _faults(draw: random.Random, pass_ms: float, seconds: float) -> list[dict[str, Any]]:
    """One or two things that happen to the first drafter."""
    faults: list[dict[str, Any]] = []
    for _ in range(draw.choice((1, 2))):
        what = draw.choice(("dies", "slows", "misleads", "pauses", "cut", "link"))
        fault: dict[str, Any] = {
            "at_s": seconds * draw.uniform(0.2, 0.7),
            "what": what,
            "who": "d0",
        }
        if what == "pauses" or draw.random() < 0.7:
            fault["seconds"] = seconds * draw.uniform(0.02, 0.2)
        if what == "slows":
            fault["factor"] = draw.choice((2, 4, 10))
        if what == "link":
            fault["link"] = {
                "latency_ms": pass_ms * draw.choice((1, 3)),
                "jitter_ms": 0.3 * pass_ms,
            }
        faults.append(fault)
    return faults
