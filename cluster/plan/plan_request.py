"""What a plan is made from: devices with prices, drafters with how often they are right, the network, the traffic."""

from __future__ import annotations

import math
from bisect import bisect_right
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from outrider.actors.engine.profiles import Profile, Roofline, find_profile
from outrider.actors.engine.tables.trigram_laws import check_law
from outrider.cluster.config.config_errors import ConfigError, problems_of
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.config.config_section import NAME, Section
from outrider.cluster.simulate.scenario import LONGEST_S, Nodes, Slots
from outrider.cluster.simulate.simulated_device import MAX_CONTEXT

Usd = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Percent = Annotated[int, Field(ge=35, le=95)]

PLAIN = "plain"
"""Name of the way without a drafter."""

PROMPTS = 8
"""Times that a trial in virtual time reads all prompts of a target, at least. Fewer would leave too few answers to count."""

LONGEST_PROMPTS_S = LONGEST_S / PROMPTS
"""That the prompts of a target may take together, so that a trial ends."""


class PlanDevice(Section):
    """A model on a device."""

    profile: str
    """What its passes take (docs/emulation.md), measured or by roofline."""
    gpus: Count | None = None
    """That one of it takes, where figures are measured; None: as many as the profile's name says, else 1."""
    usd_per_gpu_hour: Usd = 1.0
    """Price of each, in any unit."""
    slots: Slots = 256
    """Sessions that one can hold, if its memory has room for them."""

    @model_validator(mode="after")
    def _exists(self) -> PlanDevice:
        profile = find_profile(self.profile)
        if isinstance(profile, Roofline) and self.gpus not in (None, profile.gpus):
            raise ValueError(
                f"gpus is {self.gpus}, but {self.profile} takes {profile.gpus}; leave gpus out, or take the profile of as many"
            )
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

    def room(self, tokens: int) -> int:
        """Sessions that one can hold: its slots, or fewer where the memory of its GPUs has no room for more.

        Args:
            tokens: Of each session, its prompt among them.
        """
        profile = find_profile(self.profile)
        # A measured profile does not say how large its model is.
        fitting = profile.sessions_that_fit(tokens) if isinstance(profile, Roofline) else self.slots
        return min(self.slots, fitting)


class PlanDrafter(PlanDevice):
    """A draft model that could be used."""

    name: Annotated[str, Field(pattern=NAME)]
    agrees: Percent
    """Percentage of draws that are its first candidate, as `outrider bench` shows them."""
    latency_ms: Annotated[float, Field(ge=0.0, le=10_000.0)] = 0.1
    """To the targets, one way."""

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

    target: PlanDevice
    """The target model."""
    drafters: Annotated[tuple[PlanDrafter, ...], Field(min_length=1, strict=False)]
    traffic: PlanTraffic = PlanTraffic()
    nodes: Annotated[tuple[Nodes, ...], Field(min_length=1, strict=False)] = (2, 4, 8, 16)
    """Tree budgets to try."""
    gpus: Count | None = None
    """At most, in all; None: any number."""

    @property
    def target_sessions(self) -> int:
        """Requests that a target can have at once: it has room for them, and their prompts end while a trial lasts."""
        room = self.target.room(self.traffic.prompt + self.traffic.tokens)
        return bisect_right(range(1, room + 1), LONGEST_PROMPTS_S, key=self.prompts_s)

    def drafter_sessions(self, drafter: PlanDrafter) -> int:
        """Requests that a drafter can have at once."""
        return drafter.room(self.traffic.prompt + self.traffic.tokens)

    def prompts_s(self, sessions: int) -> float:
        """Seconds of a target's passes over the prompts of so many requests."""
        rows = sessions * self.traffic.prompt
        return self.target.passes.seconds(rows=rows, sessions=sessions, context=0)

    @property
    def has_price(self) -> bool:
        """Whether anything costs anything."""
        return any(one.usd_per_gpu_hour for one in (self.target, *self.drafters))

    @property
    def least_targets(self) -> int:
        """Targets without which the requests cannot be held at once."""
        return math.ceil(self.traffic.requests / self.target_sessions)

    @model_validator(mode="after")
    def _can_be_served(self) -> PlanRequest:
        target, traffic = self.target, self.traffic
        if not target.room(traffic.prompt + traffic.tokens):
            raise ValueError(
                f"the weights of {target.profile} leave no room on its GPUs for a request of {traffic.prompt} + "
                f"{traffic.tokens} tokens; take more GPUs of it, a smaller model or shorter texts"
            )
        if not self.target_sessions:
            raise ValueError(
                f"a prompt of {traffic.prompt} tokens takes {target.profile} {self.prompts_s(1) / 3600:.1f} hours; it may take "
                f"{LONGEST_PROMPTS_S / 3600:.0f}, since virtual time ends after {LONGEST_S / 3600:.0f} and a trial needs "
                f"{PROMPTS} of them"
            )
        least = self.least_targets
        gpus = least * target.num_gpus
        if self.gpus is not None and gpus > self.gpus:
            raise ValueError(
                f"one target takes {gpus} GPUs and {self.gpus} are allowed"
                if least == 1
                else f"{traffic.requests} requests need {least} targets, since one holds {self.target_sessions} of them; these "
                f"take {gpus} GPUs and {self.gpus} are allowed"
            )
        return self

    @model_validator(mode="after")
    def _names_differ(self) -> PlanRequest:
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
