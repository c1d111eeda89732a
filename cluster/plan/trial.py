"""An option tried in virtual time: one cell of it, with the code that ships."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.cluster.plan.plan_request import PROMPTS, PlanRequest
from outrider.cluster.plan.serving_ways import MAX_DEPTH, Option, target_s
from outrider.cluster.simulate.compare import run
from outrider.cluster.simulate.scenario import LONGEST_S, Scenario
from outrider.cluster.simulate.simulated_service import SimulatedMode, SimulatedRun

PASSES = 300
"""Plain passes that a trial lasts for, at least; and as many as two requests take plainly, if a scenario may be so long."""

SETTLING = 0.25
"""Part of a trial that is not counted: sessions begin, calibrations and costs are learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of a trial."""

    option: Option
    """With the simulated rates."""
    expected: float
    """Speed-up of the closed form."""


def tried(request: PlanRequest, option: Option) -> Tried:
    """Simulates a cell of an option, plainly and, if it has a drafter, with it."""
    plain = rate(run(scenario(request, option), SimulatedMode.PLAIN))
    rated = plain
    if option.drafter is not None:
        rated = rate(run(scenario(request, option), SimulatedMode.PIPELINED))
    each = rated / (option.sessions * option.shared_by)
    simulated = replace(
        option, tokens_per_s=each * request.traffic.requests, speed_up=rated / plain
    )
    return Tried(option=simulated, expected=option.speed_up)


def rate(one: SimulatedRun) -> float:
    """Tokens a second after the beginning."""
    began = SETTLING * one.seconds
    answers = one.answers
    late = sum(
        count for when, count in zip(answers.times_s, answers.tokens, strict=True) if when > began
    )
    return late / (one.seconds - began)


def scenario(request: PlanRequest, option: Option) -> Scenario:
    """A cell of an option: the targets that share a drafter, with their part of the requests."""
    traffic, target = request.traffic, request.target
    clients = option.sessions * option.shared_by
    context = option.sessions * (traffic.prompt + traffic.tokens // 2)
    pass_s = target.passes.seconds(rows=option.sessions, sessions=option.sessions, context=context)
    # Where passes take next to nothing, processors decide how long a round is.
    processor_s = target_s(request, option.sessions, option.sessions) - pass_s
    seconds = max(
        pass_s * max(PASSES, 2 * traffic.tokens),
        processor_s * PASSES,
        request.prompts_s(option.sessions) * PROMPTS,
    )
    drafter = option.drafter or request.drafters[0]
    return Scenario.model_validate(
        {
            "name": option.name,
            "seconds": min(seconds, LONGEST_S),
            "temperature": traffic.temperature,
            "max_nodes": max(option.nodes, 1),
            "max_depth": MAX_DEPTH,
            "targets": [
                {
                    "name": f"t{number}",
                    "model": f"law:agree{drafter.agrees}",
                    "profile": target.profile,
                    "slots": option.sessions,
                }
                for number in range(option.shared_by)
            ],
            "drafters": [
                {
                    "name": "d",
                    "model": f"law:agree{drafter.agrees}/draft",
                    "profile": drafter.profile,
                    "slots": clients,
                    "link": {"latency_ms": drafter.latency_ms},
                }
            ],
            "load": [{"clients": clients, "tokens": traffic.tokens, "prompt": traffic.prompt}],
        }
    )
