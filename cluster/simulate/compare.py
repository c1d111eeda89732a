"""A scenario in its three ways, and what that says: figures, and which bounds do not hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from outrider.actors.engine.profiles import find_profile
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.cluster.simulate import faults
from outrider.cluster.simulate.foresight import foresight, ideal_speed_up
from outrider.cluster.simulate.scenario import Scenario
from outrider.cluster.simulate.simulated_service import (
    SimulatedMode,
    SimulatedRun,
    SimulatedService,
)

WINDOW = 200
"""Rounds of a window."""

STEP = 50
"""Rounds between the beginnings of two windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFigures:
    """Of a scenario. Rates are of tokens delivered, over the whole run."""

    scenario: str
    tokens_per_s: dict[SimulatedMode, float]
    speed_up: float
    """Pipelined over plain."""
    over_lockstep: float
    tokens_per_pass: float
    """Of a session and round, prompts left out."""
    window: float | None
    """Least of any 200 rounds after the first 200, over plain decoding in the same time; None: there were fewer."""
    bytes_per_token: float | None
    """None: there was no token."""
    target_busy: float
    """Share of the time in passes."""
    drafters_busy: float
    cpu_us: dict[str, float]
    """Processor time of each process for a session and round, microseconds."""
    plain_share: float
    """Plain decoding, over what the device alone would decode of it."""
    ideal: float | None
    eta: float | None
    """Speed-up over the ideal; None where that is not known: other verifiers, loads that change, faults."""
    digests: dict[SimulatedMode, str]
    failed: int
    """Requests."""
    broken: tuple[str, ...] = ()
    """Bounds that do not hold; that outputs differ is the first of all."""


def compare(scenario: Scenario, modes: Iterable[SimulatedMode] = SimulatedMode) -> ComparedFigures:
    """Runs a scenario in each way.

    Args:
        scenario: The scenario.
        modes: Ways; plain and pipelined are always among them.
    """
    wanted = {SimulatedMode.PLAIN, SimulatedMode.PIPELINED, *modes}
    runs = {mode: run(scenario, mode) for mode in SimulatedMode if mode in wanted}
    figures = figures_of(scenario, runs)
    if VERIFIERS[scenario.verifier].needs_frozen_tree and scenario.temperature > 0.0:
        # The same law, but other tokens.
        return figures
    unequal = [difference(runs[SimulatedMode.PLAIN], one) for one in runs.values()]
    return replace(figures, broken=(*filter(None, unequal), *figures.broken))


def run(scenario: Scenario, mode: SimulatedMode) -> SimulatedRun:
    """Runs a scenario in one way."""
    service = SimulatedService(scenario, mode)
    faults.plan(service)
    return service.run()


def difference(plain: SimulatedRun, other: SimulatedRun) -> str:
    """Where an output first differs from that of plain decoding, as far as both came; empty if nowhere."""
    for key in sorted(plain.outputs.keys() & other.outputs.keys()):
        for at, (one, two) in enumerate(zip(plain.outputs[key], other.outputs[key], strict=False)):
            if one != two:
                return f"{other.mode} differs from plain decoding in {key} at token {at}"
    return ""


def figures_of(scenario: Scenario, runs: dict[SimulatedMode, SimulatedRun]) -> ComparedFigures:
    """What runs say."""
    plain, piped = runs[SimulatedMode.PLAIN], runs[SimulatedMode.PIPELINED]
    rates = {mode: one.tokens / one.seconds for mode, one in runs.items()}
    rounds = session_rounds(piped)
    lockstep = rates.get(SimulatedMode.LOCKSTEP, 0.0)
    limit = _ideal(scenario)
    speed_up = _over(rates[SimulatedMode.PIPELINED], rates[SimulatedMode.PLAIN])
    names = [actor.name for actor in scenario.targets]
    drafters = [actor.name for actor in scenario.drafters]
    figures = ComparedFigures(
        scenario=scenario.name,
        tokens_per_s=rates,
        speed_up=speed_up,
        over_lockstep=_over(rates[SimulatedMode.PIPELINED], lockstep),
        tokens_per_pass=_over(sum(sum(log.tokens) for log in piped.logs.values()), rounds),
        window=worst_window(plain, piped),
        bytes_per_token=piped.wire_bytes / piped.tokens if piped.tokens else None,
        target_busy=sum(piped.device_s[name] for name in names) / (scenario.seconds * len(names)),
        drafters_busy=_over(
            sum(piped.device_s.get(name, 0.0) for name in drafters),
            scenario.seconds * len(drafters),
        ),
        cpu_us={name: 1e6 * _over(spent, rounds) for name, spent in piped.cpu_s.items()},
        plain_share=_plain_share(plain),
        ideal=limit,
        eta=None if limit is None else speed_up / limit,
        digests={mode: one.digest for mode, one in runs.items()},
        failed=sum(bool(asked.failure) for asked in piped.answers.requests.values()),
    )
    return judged(scenario, figures)


def judged(scenario: Scenario, figures: ComparedFigures) -> ComparedFigures:
    """The same, with the bounds that do not hold."""
    bounds, broken = scenario.bounds, []
    least = {
        "speed_up": figures.speed_up,
        "over_lockstep": figures.over_lockstep,
        "window": figures.window,
        "tokens_per_pass": figures.tokens_per_pass,
        "eta": figures.eta,
        "plain": figures.plain_share,
    }
    for name, value in least.items():
        bound = getattr(bounds, name)
        if bound is not None and (value is None or value < bound):
            broken.append(f"{name} {_shown(value)}, wanted {bound:g}")
    most, found = bounds.bytes_per_token, figures.bytes_per_token
    if most is not None and (found is None or found > most):
        broken.append(f"bytes_per_token {_shown(found)}, at most {most:g} wanted")
    if figures.failed:
        broken.append(f"{figures.failed} requests failed")
    return replace(figures, broken=tuple(broken))


def worst_window(plain: SimulatedRun, piped: SimulatedRun) -> float | None:
    """See `ComparedFigures.window`. Of the first target's rounds; tokens are those of all."""
    ends = next(iter(piped.logs.values())).ends_s
    if len(ends) < 2 * WINDOW:
        return None
    worst = np.inf
    for first in range(WINDOW, len(ends) - WINDOW + 1, STEP):
        began, ended = ends[first - 1], ends[first + WINDOW - 1]
        wanted = _delivered(plain, began, ended)
        if wanted:
            worst = min(worst, _delivered(piped, began, ended) / wanted)
    return None if worst == np.inf else float(worst)


def _delivered(one: SimulatedRun, began: float, ended: float) -> float:
    """Tokens that left the coordinator in a time."""
    times = np.array(one.answers.times_s)
    tokens = np.array(one.answers.tokens)
    return float(tokens[(times > began) & (times <= ended)].sum())


def session_rounds(one: SimulatedRun) -> int:
    """Rounds of sessions that committed something."""
    return sum(
        sessions
        for log in one.logs.values()
        for sessions, tokens in zip(log.sessions, log.tokens, strict=True)
        if tokens
    )


def _plain_share(plain: SimulatedRun) -> float:
    """Tokens over those of passes without a pause: the device's own rate at the load that there was."""
    tokens = sum(sum(log.tokens) for log in plain.logs.values())
    alone = sum(
        got / took * plain.seconds
        for log in plain.logs.values()
        if (took := sum(log.seconds)) and (got := sum(log.tokens))
    )
    return _over(tokens, alone)


def _ideal(scenario: Scenario) -> float | None:
    """Of scenarios with one load and nothing that goes wrong."""
    load = scenario.load
    if (
        scenario.faults
        or scenario.waves
        or len(load) != 1
        or not load[0].clients
        or not scenario.drafters
        or len(scenario.targets) != 1
        or not VERIFIERS[scenario.verifier].shares_noise
    ):
        return None
    target, drafter = scenario.targets[0], scenario.drafters[0]
    known = foresight(
        target.model, drafter.model, scenario.temperature, scenario.max_nodes, scenario.max_depth
    )
    sessions = min(load[0].clients, target.slots)
    context = sessions * (load[0].prompt + load[0].tokens // 2)
    of_target, of_draft = find_profile(target.profile), find_profile(drafter.profile)
    return ideal_speed_up(
        known,
        sessions=sessions,
        target_s=lambda rows: of_target.seconds(rows=rows, sessions=sessions, context=context),
        draft_s=lambda rows: of_draft.seconds(rows=rows, sessions=sessions, context=context),
        round_trip_s=2e-3 * drafter.link.latency_ms,
    )


def _over(one: float, other: float) -> float:
    return one / other if other else 0.0


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"
