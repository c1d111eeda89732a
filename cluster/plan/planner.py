"""A plan: the cheapest way that is fast enough, tried in virtual time, and from which load on drafters stop paying."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from outrider.cluster.plan.plan_request import PlanRequest
from outrider.cluster.plan.serving_ways import Option, options
from outrider.cluster.plan.trial import Tried, tried

TRIALS = 4
"""Options that are tried."""

LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Requests at a target for which it is told whether drafters pay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """Of one target and its drafter at a load, by the closed form."""

    sessions: int
    best: Option
    """The cheapest way with a drafter."""
    plain_usd_per_million: float

    @property
    def pays(self) -> bool:
        """Whether a token is cheaper with it, its own GPUs paid."""
        return self.best.usd_per_million < self.plain_usd_per_million


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is best."""

    best: Tried | None
    """None: nothing is fast enough or fits."""
    others: tuple[Tried, ...]
    """Next best ones, plain decoding among them."""
    loads: tuple[LoadPoint, ...]


def plan(
    request: PlanRequest,
    *,
    trials: int = TRIALS,
    tell: Callable[[str], None] = lambda line: None,
) -> Plan:
    """Makes a plan.

    Args:
        request: What it is for.
        trials: Options that are tried in virtual time, at least 1, and more until one of them is fast enough; plain decoding
            always is besides.
        tell: Takes lines on how it goes.
    """
    every = list(options(request))
    ranked = sorted(filter(lambda one: is_enough(request, one), every), key=_order)
    best_by_name: dict[tuple[str, int, int], Option] = {}
    for option in ranked:
        # Of one drafter and numbers of targets and drafters only the best shape: the others differ by less than a trial does.
        best_by_name.setdefault((option.name, option.targets, option.drafters), option)
    plain = sorted(
        (one for one in every if one.drafter is None),
        key=lambda one: (not is_enough(request, one), _order(one)),
    )
    found: list[Tried] = []

    def attempt(option: Option) -> None:
        tell(f"trying {describe(option)}")
        found.append(tried(request, option))

    for option in best_by_name.values():
        # The closed form may expect too much, so the cheapest that it thinks fast enough need not be.
        if len(found) >= trials and any(is_enough(request, one.option) for one in found):
            break
        attempt(option)
    # The cheapest plain way that is fast enough in virtual time too, or no way with drafters is known to be worth it.
    for option in plain:
        known = {one.option.targets: one.option for one in found if one.option.drafter is None}
        if any(is_enough(request, one) for one in known.values()):
            break
        if not known or (is_enough(request, option) and option.targets not in known):
            attempt(option)
    found.sort(key=lambda one: (not is_enough(request, one.option), _order(one.option)))
    best = found[0] if found and is_enough(request, found[0].option) else None
    return Plan(
        best=best,
        others=tuple(found if best is None else found[1:]),
        loads=tuple(where_it_pays(request)),
    )


def where_it_pays(request: PlanRequest) -> Iterable[LoadPoint]:
    """One target and one drafter at each load, by the closed form."""
    for sessions in LOADS:
        if sessions > request.target_sessions:
            break
        traffic = request.traffic.model_copy(update={"requests": sessions})
        alone = request.model_copy(update={"traffic": traffic, "gpus": None})
        here = [one for one in options(alone) if one.targets == 1]
        drafting = [one for one in here if one.drafter is not None]
        plain = next(one for one in here if one.drafter is None)
        if drafting:
            yield LoadPoint(
                sessions=sessions,
                best=min(drafting, key=_order),
                plain_usd_per_million=plain.usd_per_million,
            )


def describe(option: Option) -> str:
    """In words."""
    targets = f"{option.targets} target{'s' if option.targets > 1 else ''}"
    if option.drafter is None:
        return f"{targets}, plain"
    drafters = f"{option.drafters} x {option.name}"
    return f"{targets}, {drafters}, {option.nodes} nodes"


def _order(option: Option) -> tuple[float, float, int]:
    """The cheapest first; of equal ones, as all are where nothing has a price, the fastest, and then the smaller tree."""
    return option.usd_per_million, -option.tokens_per_s, option.nodes


def is_enough(request: PlanRequest, option: Option) -> bool:
    """Whether each request gets the tokens a second that are asked for."""
    return option.tokens_per_s / request.traffic.requests >= request.traffic.tokens_per_s
