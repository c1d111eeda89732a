"""The ways in which a request can be served, and what the closed form expects of each.

A *cell* is a group of targets and the one drafter that they share. What a cell decodes follows from renewals: the text is a chain
of runs that the drafter foresees, of `R` tokens in the mean with the miss that ends each. While the pipeline is full a pass commits
`E` tokens a session at a cost of `K` plain passes; after a miss a session has nothing for `w` passes and decodes plainly meanwhile,
or, if it has the target to itself, waits. So a run takes (R - p) K / E + w plain passes, p the tokens of plain passes in w, and the
speed-up S of a long text is R over that (`../actors/speculation/ideal.py` has the bounds that hold in any case).

A text of n tokens has a beginning and an end besides, which count where it is short. Its first pass, over the prompt, commits one
token without candidates. The drafter reads the prompt meanwhile, so that of the wait w after a miss a part `b` is left, in which b p
tokens are decoded plainly. The last pass commits what is missing, on average half a pass for nothing, and there is one. So the text
takes T = 1 + b w + max(1, (n - 1 - b p) / S + (1 - 1 / S) / 2) plain passes, and the speed-up is n / T: none for one or two tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from outrider.actors.speculation.ideal import mean_run
from outrider.cluster.plan.plan_request import PLAIN, PlanDrafter, PlanRequest
from outrider.cluster.simulate.foresight import foresight
from outrider.cluster.simulate.prices import load_prices

MAX_DEPTH = 8
"""Of trees, as requests have it by default."""

SHARED_BY = (1, 2, 4)
"""Targets that one drafter may serve."""

REACHED = 0.75
"""Part of the gain by the formula above that the service reaches in virtual time, fitted: .66 to 1.03 in eleven of the twelve
configurations of `bench plan`, where neither estimates nor arrivals are perfect."""

BEGINNING = 0.5
"""`b` above. Between none, where candidates from the prompt are there before the first pass ends and are right, and 1. Fitted to texts
of 2 to 40 tokens in seven configurations of devices, agreement, latency and requests."""

FIRST_LEVELS = 2.0
"""Draft passes between a verdict that is a miss and the tree that goes out for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to serve all requests."""

    drafter: PlanDrafter | None
    """None: plain decoding."""
    nodes: int
    """Of a tree, at most."""
    targets: int
    shared_by: int
    """Targets of a drafter."""
    sessions: int
    """Of a target, at most."""
    tokens_per_s: float
    """Of all."""
    speed_up: float
    """Over plain decoding on as many targets."""
    gpus: int
    usd_per_s: float

    @property
    def usd_per_million(self) -> float:
        """Price of a million tokens; without bound if none came while it was tried."""
        return 1e6 * self.usd_per_s / self.tokens_per_s if self.tokens_per_s else math.inf

    @property
    def drafters(self) -> int:
        """How many."""
        return 0 if self.drafter is None else math.ceil(self.targets / self.shared_by)

    @property
    def name(self) -> str:
        """For tables."""
        return PLAIN if self.drafter is None else self.drafter.name


def options(request: PlanRequest) -> Iterator[Option]:
    """All ways that fit, as the closed form expects them. The numbers of targets are powers of two times the least."""
    targets = request.least_targets
    while targets <= request.traffic.requests:
        yield from _of(request, targets)
        targets *= 2


def _of(request: PlanRequest, targets: int) -> Iterator[Option]:
    sessions = math.ceil(request.traffic.requests / targets)
    plain = all_plain_rate(request, targets)
    gpus, usd = targets * request.target.num_gpus, targets * request.target.usd_per_s
    if request.gpus is not None and gpus > request.gpus:
        return
    yield Option(
        drafter=None,
        nodes=0,
        targets=targets,
        shared_by=1,
        sessions=sessions,
        tokens_per_s=plain,
        speed_up=1.0,
        gpus=gpus,
        usd_per_s=usd,
    )
    for drafter in request.drafters:
        for shared_by in SHARED_BY:
            if shared_by > targets or shared_by * sessions > request.drafter_sessions(drafter):
                continue
            count = math.ceil(targets / shared_by)
            all_gpus = gpus + count * drafter.num_gpus
            if request.gpus is not None and all_gpus > request.gpus:
                continue
            for nodes in request.nodes:
                speed_up = expected(request, drafter, sessions, shared_by, nodes)
                yield Option(
                    drafter=drafter,
                    nodes=nodes,
                    targets=targets,
                    shared_by=shared_by,
                    sessions=sessions,
                    tokens_per_s=plain * speed_up,
                    speed_up=speed_up,
                    gpus=all_gpus,
                    usd_per_s=usd + count * drafter.usd_per_s,
                )


def all_plain_rate(request: PlanRequest, targets: int) -> float:
    """Tokens a second of all requests where so many targets decode plainly. Some have a request less than others."""
    sessions = math.ceil(request.traffic.requests / targets)
    return plain_rate(request, sessions) / sessions * request.traffic.requests


def plain_rate(request: PlanRequest, sessions: int) -> float:
    """Tokens a second of one target that decodes plainly, prompts included."""
    traffic = request.traffic
    step_s = target_s(request, sessions, sessions)
    prompt_s = _prompt_s(request, sessions)
    return sessions * traffic.tokens / (traffic.tokens * step_s + prompt_s)


def target_s(request: PlanRequest, sessions: int, rows: int) -> float:
    """Of a round of a target: its pass, and the processor time before and after it."""
    traffic, prices = request.traffic, load_prices()
    context = sessions * (traffic.prompt + traffic.tokens // 2)
    pass_s = request.target.passes.seconds(rows=rows, sessions=sessions, context=context)
    return pass_s + prices.target.around_s(prices.sleep.factor(pass_s), sessions, rows)


def _draft_s(request: PlanRequest, drafter: PlanDrafter, sessions: int, rows: int) -> float:
    """The same of a drafter."""
    traffic, prices = request.traffic, load_prices()
    context = sessions * (traffic.prompt + traffic.tokens // 2)
    pass_s = drafter.passes.seconds(rows=rows, sessions=sessions, context=context)
    return pass_s + prices.drafter.around_s(prices.sleep.factor(pass_s), sessions, rows)


def _prompt_s(request: PlanRequest, sessions: int) -> float:
    """What the prompts of so many requests add to their passes."""
    passes, rows = request.target.passes, sessions * request.traffic.prompt
    one_s = passes.seconds(rows=1, sessions=1, context=0)
    return passes.seconds(rows=1 + rows, sessions=1, context=0) - one_s


def expected(
    request: PlanRequest, drafter: PlanDrafter, sessions: int, shared_by: int, nodes: int
) -> float:
    """The speed-up over plain decoding that the closed form expects, at least 1: drafters rest where they do not pay.

    Args:
        request: What the plan is for.
        drafter: The drafter.
        sessions: Of each target.
        shared_by: Targets that the drafter serves.
        nodes: Of a tree, at most.
    """
    traffic = request.traffic
    law = f"law:agree{drafter.agrees}"
    known = foresight(law, f"{law}/draft", traffic.temperature, nodes, MAX_DEPTH)
    prices = load_prices()
    plain_s = target_s(request, sessions, sessions)
    all_sessions = shared_by * sessions
    run = mean_run(known.runs) + 1.0
    best = 1.0
    for size in range(1, nodes + 1):
        # What arrives from the drafter takes the target's processor while its pass runs, so it costs nothing here.
        cost = target_s(request, sessions, sessions * (1 + size)) / plain_s
        # Of each session the drafter runs about as many nodes a level as it sends.
        rows = all_sessions * max(1.0, size / MAX_DEPTH)
        step = _draft_s(request, drafter, all_sessions, round(rows)) / plain_s
        tokens = min(known.tokens_by_nodes[size], 1.0 + cost / step)
        # A verdict and the candidates after it: each is sent, received and taken in.
        slowness = prices.sleep.factor(plain_s)
        taken_s = prices.drafter.take.seconds(all_sessions) + prices.target.take.seconds(sessions)
        told_s = 4.0 * prices.message.seconds(slowness) + slowness * taken_s
        away = (2e-3 * drafter.latency_ms + told_s) / plain_s + FIRST_LEVELS * step
        if sessions > 1:
            # The others' pass does not wait.
            away = math.ceil(away / cost) * cost
        plainly = math.floor(away / cost) if sessions > 1 else math.floor(away)
        took = max(run - plainly, 0.0) / tokens * cost + away
        long_text = 1.0 + REACHED * (run / took - 1.0)
        best = max(best, _of_text(traffic.tokens, long_text, away, plainly))
    prompt_s = _prompt_s(request, sessions)
    whole_s = traffic.tokens * plain_s + prompt_s
    return whole_s / (traffic.tokens * plain_s / best + prompt_s)


def _of_text(tokens: int, long_text: float, away: float, plainly: int) -> float:
    """The speed-up of a text, its beginning and its end included.

    Args:
        tokens: Of the text.
        long_text: The speed-up of a text without end.
        away: Plain passes after a miss until candidates arrive.
        plainly: Tokens that are decoded meanwhile.
    """
    rest = tokens - 1.0 - BEGINNING * plainly
    passes = rest / long_text + (1.0 - 1.0 / long_text) / 2.0
    return tokens / (1.0 + BEGINNING * away + max(1.0, passes))
