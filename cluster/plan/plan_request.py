"""What a plan is made from: devices with prices, drafters with how often they are right, the network, the traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from outrider.actors.engine.profiles import Profile, Roofline, find_profile
from outrider.actors.engine.tables.trigram_laws import check_law
from outrider.cluster.config.config_errors import ConfigError, problems_of
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.config.config_section import NAME, Section
from outrider.cluster.simulate.scenario import Nodes
from outrider.cluster.simulate.simulated_device import MAX_CONTEXT

Usd = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Percent = Annotated[int, Field(ge=35, le=95)]

PLAIN = "plain"
"""Name of the way without a drafter."""


class PlanDevice(Section):
    """A model on a device."""

    profile: str
    """What its passes take (docs/emulation.md), measured or by roofline."""
    gpus: Count | None = None
    """That one of it takes; None: as many as the profile's name says, else 1."""
    usd_per_gpu_hour: Usd = 1.0
    """Price of each, in any unit."""

    @model_validator(mode="after")
    def _exists(self) -> PlanDevice:
        find_profile(self.profile)
        return self

    @property
    def num_gpus(self) -> int:
        """GPUs of one."""
        profile = find_profile(self.profile)
        named = profile.gpus if isinstance(profile, Roofline) else 1
        return self.gpus or named

    @property
    def usd_per_s(self) -> float:
        """Price of one."""
        return self.num_gpus * self.usd_per_gpu_hour / 3600.0

    @property
    def passes(self) -> Profile:
        """What passes take."""
        return find_profile(self.profile)


class PlanTarget(PlanDevice):
    """The target model."""

    slots: Count = 256
    """Sessions that one can hold."""


class PlanDrafter(PlanDevice):
    """A draft model that could be used."""

    name: Annotated[str, Field(pattern=NAME)]
    agrees: Percent
    """Percentage of draws that are its first candidate, as `outrider bench` shows them."""
    latency_ms: Annotated[float, Field(ge=0.0, le=10_000.0)] = 0.1
    """To the targets, one way."""
    slots: Count = 256

    @model_validator(mode="after")
    def _agrees(self) -> PlanDrafter:
        check_law(f"agree{self.agrees}/draft")
        return self


class PlanTraffic(Section):
    """What is asked."""

    requests: Count = 64
    """At once."""
    tokens: Count = 256
    prompt: Count = 64
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 0.8
    tokens_per_s: Annotated[float, Field(ge=0.0)] = 0.0
    """Least for each request; 0: what is cheapest."""

    @model_validator(mode="after")
    def _fits(self) -> PlanTraffic:
        if self.prompt + self.tokens > MAX_CONTEXT:
            raise ValueError(
                f"requests of {self.prompt} + {self.tokens} tokens; prompt and tokens may be {MAX_CONTEXT} together"
            )
        return self


class PlanRequest(Section):
    """What a plan is made from."""

    target: PlanTarget
    drafters: Annotated[tuple[PlanDrafter, ...], Field(min_length=1, strict=False)]
    traffic: PlanTraffic = PlanTraffic()
    nodes: Annotated[tuple[Nodes, ...], Field(min_length=1, strict=False)] = (2, 4, 8, 16)
    """Tree budgets to try."""
    gpus: Count | None = None
    """At most, in all; None: any number."""

    @model_validator(mode="after")
    def _fits(self) -> PlanRequest:
        names = [PLAIN, *(one.name for one in self.drafters)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two drafters are called {name!r}"
                    if name != PLAIN
                    else f"{name!r} is the way without a drafter; name the drafter otherwise"
                )
        return self


def load_request(file: Path) -> PlanRequest:
    """Reads what a plan is made from.

    Raises:
        ConfigError: The file cannot be read or is wrong; every problem is named.
    """
    try:
        return PlanRequest.model_validate(read_mapping(file))
    except ValidationError as error:
        raise ConfigError(str(file), problems_of(error, PlanRequest)) from None
