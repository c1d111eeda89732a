"""A scenario: models and devices, links, load, what goes wrong, and the bounds that must hold. One file each, YAML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from outrider.actors.engine.profiles import find_profile
from outrider.actors.speculation.options import Speculation
from outrider.cluster.config.config_errors import ConfigError, ConfigProblem, problems_of
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.config.config_section import NAME, Section
from outrider.cluster.simulate.simulated_device import table_of

Seconds = Annotated[float, Field(ge=0.0, le=86_400.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Name = Annotated[str, Field(pattern=NAME)]


class Link(Section):
    """A connection, the same in both directions."""

    latency_ms: Seconds = 0.05
    """One way."""
    jitter_ms: Seconds = 0.0
    """Mean of what is added to each message."""
    mbit_per_s: Annotated[float, Field(gt=0.0, le=1e6)] = 10_000.0
    loss: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Share of messages of which a packet is lost and sent again."""


class Actor(Section):
    """A model on a device."""

    name: Name
    model: str
    """`law:NAME` or `tabular:FILE`."""
    profile: str
    """What its passes take, as `outrider serve --emulate` knows profiles."""
    slots: Count = 64
    machine: Name | None = None
    """Whose cores its process shares; None: it has enough of its own."""
    on_cores: bool = False
    """Its passes take a core of the machine, as those of models without a GPU do."""

    @model_validator(mode="after")
    def _exists(self) -> Actor:
        find_profile(self.profile)
        table_of(self.model)
        return self


class ScenarioDrafter(Actor):
    """A drafter and its way to the targets."""

    link: Link = Link()
    bytes_per_token: Annotated[float, Field(gt=0.0)] | None = None
    """As the drafter's setting; None: its default."""


class Load(Section):
    """Clients that ask again as soon as they are answered, until the next step."""

    at_s: Seconds = 0.0
    clients: Annotated[int, Field(ge=0, le=100_000)]
    tokens: Count = 256
    prompt: Count = 32
    """Tokens."""
    speculates: bool = True
    """False: these requests want no speculation."""


class Wave(Section):
    """Requests that come all at once, again and again."""

    at_s: Seconds
    requests: Count
    every_s: Annotated[float, Field(gt=0.0)] | None = None
    """None: once."""
    until_s: Seconds | None = None
    tokens: Count = 20
    prompt: Count = 32


class Fault(Section):
    """Something that goes wrong."""

    at_s: Seconds
    what: Literal["dies", "slows", "misleads", "pauses", "cut", "link", "cores"]
    """`dies`: the process ends; `slows`: its device, by `factor`; `misleads`: a drafter follows another law, as if texts could not
    be foreseen any more; `pauses`: the process stands still; `cut`: its stream to the targets breaks; `link`: its link is another;
    `cores`: the machine of this name has another number of them."""
    who: Name
    """An actor, or a machine."""
    seconds: Seconds | None = None
    """Until it is over; None: it stays."""
    factor: Annotated[float, Field(gt=0.0)] = 4.0
    link: Link | None = None
    cores: Count | None = None
    model: str | None = None
    """Of `misleads`; None: a law that agrees with none."""


class Bounds(Section):
    """What must hold; what is not named is not looked at. Outputs equal those of plain decoding always, but for
    verifiers that keep only the law."""

    speed_up: float | None = None
    """Least tokens a second, over plain decoding."""
    over_lockstep: float | None = None
    """Least tokens a second, over lock-step."""
    window: float | None = None
    """Least tokens, over plain decoding in the same time, of any 200 rounds after the first 200."""
    tokens_per_pass: float | None = None
    """Least tokens of a session and round."""
    bytes_per_token: float | None = None
    """Most bytes between drafters and targets for a token."""
    eta: float | None = None
    """Least speed-up over the ideal."""
    plain: float | None = None
    """Least tokens a second of plain decoding, over what the target's device alone would decode."""


class Scenario(Section):
    """One run."""

    name: str
    about: str = ""
    """What it is for; which incident it repeats."""
    seed: int = 1
    seconds: Annotated[float, Field(gt=0.0, le=86_400.0)]
    """Virtual."""
    targets: Annotated[tuple[Actor, ...], Field(min_length=1, strict=False)]
    drafters: Annotated[tuple[ScenarioDrafter, ...], Field(strict=False)] = ()
    machines: dict[Name, Count] = Field(default_factory=dict)
    """Cores of each."""
    coordinator_machine: Name | None = None
    prices: Literal["measured", "free"] = "measured"
    """What processor time costs."""
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 0.8
    verifier: str = Field("coupled", strict=False)
    max_nodes: Count = 16
    max_depth: Count = 8
    adaptive: bool = True
    """False: drafters always work, as with the setting of this name."""
    load: Annotated[tuple[Load, ...], Field(strict=False)] = ()
    waves: Annotated[tuple[Wave, ...], Field(strict=False)] = ()
    faults: Annotated[tuple[Fault, ...], Field(strict=False)] = ()
    bounds: Bounds = Bounds()

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        names = [one.name for one in (*self.targets, *self.drafters)]
        if len(set(names)) < len(names):
            raise ValueError("two actors have the same name")
        for one in (*self.targets, *self.drafters):
            if one.machine is not None and one.machine not in self.machines:
                raise ValueError(f"machine {one.machine!r} of {one.name} is not among machines")
            if one.on_cores and one.machine is None:
                raise ValueError(f"{one.name} computes on cores, but has no machine")
        for fault in self.faults:
            if fault.who not in (*self.machines, *names):
                raise ValueError(f"{fault.who!r} of a fault is neither an actor nor a machine")
        if not self.load and not self.waves:
            raise ValueError("nobody asks for anything: load and waves are empty")
        return self

    def speculation(self, *, enabled: bool) -> Speculation:
        """What requests ask for."""
        return Speculation(
            enabled=enabled,
            verifier=self.verifier,
            max_nodes=self.max_nodes,
            max_depth=self.max_depth,
        )


def load_scenario(file: Path) -> Scenario:
    """Reads a scenario.

    Raises:
        ConfigError: It cannot be read or is none; every problem is named.
    """
    data = read_mapping(file)
    data.setdefault("name", file.stem)
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise ConfigError(str(file), problems_of(error, Scenario)) from None
    except ValueError as error:
        raise ConfigError(str(file), (ConfigProblem("", str(error)),)) from None
