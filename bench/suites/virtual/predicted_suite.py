"""Virtual time beside measurement: each point of `bench emulated` run again in virtual time, with the measured prices of processor time.

A point is what `emulated.jsonl` has a row for. The same texts come again and again: once for everything to be learned, then as often
as they were measured, and the median counts; the window and the units are those of the measurement. Target, drafter and coordinator
share the measuring machine's cores; its client, which took processor time on them too, is not simulated. Rows depend on
`cluster/simulate/prices.yaml` and the measured rows, not on the machine or its load.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from bench.figures.emulated_run import SETTLED
from bench.report import rows as results
from bench.report.tables_simulated import ROLES, WAYS, WITHIN
from bench.suites.service.emulated_suite import (
    CHOICES,
    DRAFTING,
    KEYS,
    PROMPT_TOKENS,
    prompts_of,
)
from outrider.cluster.simulate.compare import difference, session_rounds
from outrider.cluster.simulate.prices import load_prices
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulate_command import quiet
from outrider.cluster.simulate.simulated_service import (
    SimulatedMode,
    SimulatedRun,
    SimulatedService,
)

__all__ = ["CHOICES", "KEYS", "run"]

MACHINE = "box"

TARGET, DRAFTER, _ = ROLES
"""Each is called as its role."""

MODES = dict(zip(WAYS, (SimulatedMode.PLAIN, SimulatedMode.PIPELINED), strict=True))

ROOM = (1.6, 3.2, 6.4)
"""Virtual seconds for a wave of requests, over those that the measured rate asks for: the first that are enough."""


def run(
    *,
    levels: Sequence[int] | None = None,
    profiles: Sequence[str] | None = None,
    drafting: Sequence[str] | None = None,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each measured one with one drafter.

    Args:
        levels: Requests at once; None: all that were measured.
        profiles: The target's; None: all that were measured.
        drafting: `always`, `adaptive` or both; None: as measured.
        is_quick: One row.

    Raises:
        SystemExit: Nothing was measured that is asked for.
        RuntimeError: A point takes far longer than measured.
    """
    targets = None if profiles is None else [name.partition(":")[0] for name in profiles]
    wanted = {"level": levels, "profile": targets, "drafting": drafting}
    measured = [
        row
        for row in results.read("emulated")
        if row["drafters"] == 1
        and all(values is None or row[key] in values for key, values in wanted.items())
    ]
    if not measured:
        raise SystemExit(
            "nothing to predict: bench/results/emulated.jsonl has no such row; run `python -m bench emulated` first"
        )
    rows = []
    for row in measured[: 1 if is_quick else None]:
        rows.append(predicted(row))
        print(line(rows[-1]), flush=True)
        yield rows[-1]
    for told in summary(rows):
        print(told)


def predicted(row: dict[str, Any]) -> dict[str, Any]:
    """A measured row's point in virtual time."""
    with quiet():
        runs = {way: _run(row, way) for way in WAYS}
    unequal = difference(*(one for one, _ in runs.values()))
    return {
        **{key: row[key] for key in KEYS},
        **{way: _compared(row, way, *found) for way, found in runs.items()},
        "different": unequal,
        "prices": load_prices().machine,
        "measured": {
            "commit": row["machine"]["commit"],
            "two_at_once": row["machine"]["two_at_once"],
            "date": row["date"],
        },
    }


def _compared(
    row: dict[str, Any], way: str, one: SimulatedRun, tokens_per_s: float
) -> dict[str, Any]:
    """Units, and of the whole of both waves what makes them: tokens a round and processor time for a round of a session."""
    units, measured = tokens_per_s / row["unit_tokens_per_s"], row[way]
    rounds = session_rounds(one)
    tokens = sum(sum(log.tokens) for log in one.logs.values())
    return {
        "measured": measured["units"],
        "predicted": units,
        "error": units / measured["units"] - 1.0,
        "tokens_per_round": {
            "measured": measured["tokens_per_round"],
            "predicted": tokens / rounds,
        },
        "cpu_us": {
            role: {
                "measured": measured["cpu_us"][role],
                "predicted": 1e6 * one.cpu_s.get(role, 0.0) / rounds,
            }
            for role in ROLES
        },
    }


def _run(row: dict[str, Any], way: str) -> tuple[SimulatedRun, float]:
    """A run and its tokens a second in the window that is measured."""
    measured_s = row["level"] * row["max_tokens"] / row[way]["tokens_per_s"]
    prompts = prompts_of(row["level"])
    for room in ROOM:
        service = SimulatedService(scenario(row, room * measured_s), MODES[way])
        service.traffic.text_of = lambda key, _: (tuple(prompts[key[2]]), key[2])
        one = service.run()
        rates = [window_rate(one, wave) for wave in range(1, 1 + row["runs"])]
        found = [rate for rate in rates if rate is not None]
        if len(found) == len(rates):
            return one, statistics.median(found)
    raise RuntimeError(
        f"{way} decoding of {scenario(row, measured_s).name} takes more than {ROOM[-1]:g} times as long as measured"
    )


def scenario(row: dict[str, Any], wave_s: float) -> Scenario:
    """The scenario of a measured row: all its requests at once, and again each time that so many seconds have gone by."""
    slots = max(16, row["level"])
    wave = {
        "requests": row["level"],
        "tokens": row["max_tokens"],
        "prompt": PROMPT_TOKENS,
    }
    return Scenario.model_validate(
        {
            "name": " ".join(str(row[key]) for key in KEYS),
            "seconds": (1 + row["runs"]) * wave_s,
            "temperature": row["temperature"],
            "adaptive": DRAFTING[row["drafting"]],
            "machines": {MACHINE: row["machine"]["cores"]},
            "coordinator_machine": MACHINE,
            "targets": [
                {
                    "name": TARGET,
                    "model": f"law:{row['law']}",
                    "profile": row["profile"],
                    "slots": slots,
                    "machine": MACHINE,
                }
            ],
            "drafters": [
                {
                    "name": DRAFTER,
                    "model": f"law:{row['law']}/draft",
                    "profile": row["draft_profile"],
                    "slots": slots,
                    "machine": MACHINE,
                }
            ],
            "waves": [{"at_s": number * wave_s, **wave} for number in range(1 + row["runs"])],
        }
    )


def window_rate(one: SimulatedRun, wave: int) -> float | None:
    """Tokens a second of a wave, from when each request has its first tokens until one has ended; None: the wave before was not over
    when it came, or it has not come so far.

    Raises:
        RuntimeError: A request ended before all had begun.
    """
    answers = one.answers
    first, second = (
        {key: asked for key, asked in answers.requests.items() if key[1] == index}
        for index in (wave - 1, wave)
    )
    began_s = min(asked.began_s for asked in second.values())
    if any(asked.ended_s is None or asked.ended_s > began_s for asked in first.values()):
        return None
    ends = [asked.ended_s for asked in second.values() if asked.ended_s is not None]
    if not ends:
        return None
    got = dict.fromkeys(second, 0)
    settled_s, before, after = None, 0, 0
    for when, key, tokens in zip(answers.times_s, answers.keys, answers.tokens, strict=True):
        if key not in got or when > min(ends):
            continue
        got[key] += tokens
        after += tokens
        if settled_s is None and min(got.values()) >= SETTLED:
            settled_s, before = when, after
    if settled_s is None or settled_s >= min(ends):
        raise RuntimeError("the first request ended before all had begun; there is no window")
    return (after - before) / (min(ends) - settled_s)


def line(row: dict[str, Any]) -> str:
    """A row as a line: measured, predicted and the error, in units of the device's own plain decoding."""
    ways = ", ".join(
        f"{way} {row[way]['measured']:.2f} measured, {row[way]['predicted']:.2f} predicted ({100 * row[way]['error']:+.0f} %)"
        for way in WAYS
    )
    told = f"{' '.join(str(row[key]) for key in KEYS)}: {ways}"
    return f"{told}; {row['different']}" if row["different"] else told


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What rows say together."""
    for way in WAYS:
        errors = [abs(row[way]["error"]) for row in rows]
        within = sum(error <= WITHIN for error in errors)
        yield (
            f"{way}: {within} of {len(rows)} points within {100 * WITHIN:.0f} %; error {100 * statistics.median(errors):.0f} % in the "
            f"median, {100 * max(errors):.0f} % at most"
        )
