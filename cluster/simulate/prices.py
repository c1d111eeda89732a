"""What the processor time of each step costs: microseconds that its process's interpreter is busy, awake all the time.

The numbers are in `prices.yaml`, with the machine that they were measured on. They decide how many sessions a target can serve
however fast its device is.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from outrider.cluster.config.config_errors import ConfigError, problems_of
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.config.config_section import Section

FILE = Path(__file__).parent / "prices.yaml"

Micros = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]


class Step(Section):
    """Microseconds of one step."""

    fixed_us: Micros = 0.0
    """Each time."""
    session_us: Micros = 0.0
    """Each session of it."""
    row_us: Micros = 0.0
    """Each row of a pass, or node of a message."""

    def seconds(self, sessions: int = 0, rows: int = 0) -> float:
        """Seconds of a step over so many."""
        return 1e-6 * (self.fixed_us + self.session_us * sessions + self.row_us * rows)


class MessagePrice(Section):
    """Microseconds of a message sent or received: gRPC, and the hand-over between threads."""

    wake_us: Micros = 0.0
    """For the first of a turn."""
    each_us: Micros = 0.0

    def seconds(self, slowness: float) -> float:
        """Seconds of one: the first of a turn wakes its process, which takes longer the longer it has slept; 0: it is awake."""
        return 1e-6 * (self.each_us + self.wake_us * slowness)


class Sleep(Section):
    """What sleeping costs afterwards: caches are others', clocks are low."""

    times: Annotated[float, Field(ge=1.0, le=100.0)] = 1.0
    """How many times longer steps take after a long sleep."""
    within_us: Annotated[float, Field(gt=0.0, le=1e6)] = 1000.0
    """After a sleep of this time they are slower by 63 % of that."""

    def factor(self, slept_s: float) -> float:
        """How many times longer steps take after so many seconds of sleep."""
        return 1.0 + (self.times - 1.0) * -math.expm1(-1e6 * max(slept_s, 0.0) / self.within_us)


class Steps(Section):
    """What a target or a drafter does."""

    take: Step
    """A frame that arrives: candidates at a target, verdicts at a drafter."""
    begin: Step
    """Before a pass: what is run."""
    finish: Step
    """After a pass: what came of it, until the messages are made."""

    def around_s(self, slowness: float, sessions: int, rows: int) -> float:
        """Seconds between two passes: the first step comes after a sleep."""
        first_s = slowness * self.finish.seconds(sessions, rows)
        return first_s + self.begin.seconds(sessions, rows)


class CoordinatorSteps(Section):
    """What a coordinator does."""

    take: Step
    """Commits that arrive, until the clients' messages are made."""
    request: Step
    """A request, all that is not commits."""


class Prices(Section):
    """Microseconds of processor time."""

    machine: str
    """Where they were measured."""
    sleep: Sleep
    message: MessagePrice
    target: Steps
    drafter: Steps
    coordinator: CoordinatorSteps


FREE = Prices(
    machine="none: processor time is free",
    sleep=Sleep(),
    message=MessagePrice(),
    target=Steps(take=Step(), begin=Step(), finish=Step()),
    drafter=Steps(take=Step(), begin=Step(), finish=Step()),
    coordinator=CoordinatorSteps(take=Step(), request=Step()),
)
"""For what does not depend on processors."""


@lru_cache
def load_prices() -> Prices:
    """The prices of `prices.yaml`.

    Raises:
        ConfigError: It cannot be read or holds something else.
    """
    try:
        return Prices.model_validate(read_mapping(FILE))
    except ValidationError as error:
        raise ConfigError(str(FILE), problems_of(error, Prices)) from None


def prices_of(asked: Prices | str) -> Prices:
    """What a scenario asks for: prices of its own, `measured`, those of `prices.yaml`, or `free`."""
    if isinstance(asked, Prices):
        return asked
    return load_prices() if asked == "measured" else FREE
