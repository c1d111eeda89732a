"""What the processor time of each step costs: microseconds that its process's interpreter is busy.

The numbers are in `prices.yaml`, with the machine that they were measured on. They decide how many sessions a target can serve
however fast its device is.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from outrider.cluster.config_errors import ConfigError, problems_of
from outrider.cluster.config_file import read_mapping
from outrider.cluster.config_section import Section

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


class Message(Section):
    """Microseconds of a message sent or received: gRPC, and the hand-over between threads."""

    wake_us: Micros = 0.0
    """For the first of a turn."""
    each_us: Micros = 0.0

    def seconds(self, *, wakes: bool = True) -> float:
        """Seconds of one; the first of a turn wakes its process."""
        return 1e-6 * (self.each_us + (self.wake_us if wakes else 0.0))


class Steps(Section):
    """What a target or a drafter does."""

    take: Step
    """A frame that arrives: candidates at a target, verdicts at a drafter."""
    begin: Step
    """Before a pass: what is run."""
    finish: Step
    """After a pass: what came of it, until the messages are made."""


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
    message: Message
    target: Steps
    drafter: Steps
    coordinator: CoordinatorSteps


FREE = Prices(
    machine="none: processor time is free",
    message=Message(),
    target=Steps(take=Step(), begin=Step(), finish=Step()),
    drafter=Steps(take=Step(), begin=Step(), finish=Step()),
    coordinator=CoordinatorSteps(take=Step(), request=Step()),
)
"""For what does not depend on processors."""


@lru_cache
def load_prices(file: Path = FILE) -> Prices:
    """Reads prices.

    Raises:
        ConfigError: The file cannot be read or holds something else.
    """
    try:
        return Prices.model_validate(read_mapping(file))
    except ValidationError as error:
        raise ConfigError(str(file), problems_of(error, Prices)) from None
