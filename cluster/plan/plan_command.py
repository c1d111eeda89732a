"""`outrider plan`: reads what a plan is made from, makes it, and puts it in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.plan.plan_request import PlanRequest, load_request
from outrider.cluster.plan.planner import LoadPoint, Plan, describe, is_enough, plan
from outrider.cluster.plan.serving_ways import Option
from outrider.cluster.plan.trial import Tried
from outrider.cluster.process.command_failed import USAGE, CommandFailed
from outrider.cluster.simulate.simulate_command import VIRTUAL_TIME, quiet

HEADINGS = ("way", "GPUs", "tokens/s", "a request", "x plain", "expected", "$ a million")
"""Of the columns of `rows_of`."""


def make_plan(file: Path, *, trials: int, tell: Callable[[str], None]) -> tuple[PlanRequest, Plan]:
    """Makes a plan.

    Args:
        file: What it is made from.
        trials: Options that are tried in virtual time.
        tell: Takes lines on how it goes.

    Raises:
        CommandFailed: The file is wrong; nothing was run.
    """
    try:
        request = load_request(file)
    except ConfigError as error:
        raise CommandFailed(str(error), USAGE) from None
    with quiet():
        return request, plan(request, trials=trials, tell=tell)


def rows_of(request: PlanRequest, made: Plan) -> list[tuple[str, ...]]:
    """Cells of a table, the best first."""
    tried = [*filter(None, [made.best]), *made.others]
    return [_row(request, one) for one in tried]


def _row(request: PlanRequest, one: Tried) -> tuple[str, ...]:
    option = one.option
    return (
        describe(option),
        str(option.gpus),
        f"{option.tokens_per_s:.0f}",
        f"{option.tokens_per_s / request.traffic.requests:.1f}",
        f"{option.speed_up:.2f}",
        f"{one.expected:.2f}",
        f"{option.usd_per_million:.2f}",
    )


def lines_of(request: PlanRequest, made: Plan) -> list[str]:
    """What the table does not say."""
    lines = _memory(request)
    if made.best is None:
        lines.append("nothing is fast enough: allow more GPUs, or ask for less")
    if request.has_price:
        return [*lines, _paid(request, made), *_pays(made.loads)]
    return [*lines, "nothing has a price, so the fastest way comes first"]


def _memory(request: PlanRequest) -> list[str]:
    """Where memory holds fewer requests than there could be."""
    traffic = request.traffic
    lines = []
    for what, device in (
        ("target", request.target),
        *((one.name, one) for one in request.drafters),
    ):
        room = device.room(traffic.prompt + traffic.tokens)
        if room < min(device.slots, traffic.requests):
            lines.append(
                f"the memory of {device.profile} ({what}) has room for {room} requests of {traffic.prompt} + {traffic.tokens} "
                "tokens beside the weights; ways with more at one are left out"
            )
    return lines


def _paid(request: PlanRequest, made: Plan) -> str:
    """What was tried; where some ways are fast enough, the others do not count."""
    tried = [one.option for one in (*filter(None, [made.best]), *made.others)]
    if all(one.drafter is None for one in tried):
        return "in virtual time no way with a drafter was tried"
    enough = [one for one in tried if made.best is None or is_enough(request, one)]
    plain = [one.usd_per_million for one in enough if one.drafter is None]
    drafting = [one for one in enough if one.drafter is not None]
    if not drafting:
        return "in virtual time no way with a drafter that was tried is fast enough"
    if not plain:
        return "in virtual time only ways with a drafter are fast enough"
    best = min(drafting, key=lambda one: one.usd_per_million)
    if best.usd_per_million < min(plain):
        return f"in virtual time a drafter pays: {describe(best)} is cheaper than plain decoding"
    return "in virtual time no way with a drafter that was tried is cheaper than plain decoding"


def _pays(loads: Sequence[LoadPoint]) -> list[str]:
    """What the closed form says of loads."""
    paying = [str(point.sessions) for point in loads if point.pays]
    not_paying = [str(point.sessions) for point in loads if not point.pays]
    if not loads:
        return []
    if not paying:
        says = "at no load of a target; it may still make requests faster"
    elif not not_paying:
        says = f"at every load of a target up to {paying[-1]} requests at once"
    else:
        says = f"at {', '.join(paying)} requests at once for each target, not at {', '.join(not_paying)}"
    line = (
        f"by the closed form alone, a drafter on GPUs of its own for each target pays {says}; where virtual time says "
        "otherwise, that counts"
    )
    return [line]


def told(made: Plan) -> dict[str, Any]:
    """For programs. `loads` is what the closed form says; `best` and `others` were tried in virtual time."""
    return {
        "emulated": VIRTUAL_TIME,
        "best": None if made.best is None else _option(made.best.option, made.best.expected),
        "others": [_option(one.option, one.expected) for one in made.others],
        "loads": [
            {
                "sessions": point.sessions,
                "pays": point.pays,
                "plain_usd_per_million": point.plain_usd_per_million,
                **_option(point.best, point.best.speed_up),
            }
            for point in made.loads
        ],
    }


def _option(option: Option, expected: float) -> dict[str, Any]:
    return {
        "drafter": None if option.drafter is None else option.drafter.name,
        "nodes": option.nodes,
        "targets": option.targets,
        "drafters": option.drafters,
        "sessions_per_target": option.sessions,
        "gpus": option.gpus,
        "tokens_per_s": option.tokens_per_s,
        "speed_up": option.speed_up,
        "expected_speed_up": expected,
        "usd_per_million_tokens": option.usd_per_million if option.tokens_per_s else None,
    }
