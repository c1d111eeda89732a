"""A scenario: models and devices, links, load, what goes wrong, and the bounds that must hold. One file each, YAML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from outrider.actors.engine.profiles import find_profile
from outrider.actors.exchange.vocabulary import Vocabulary, difference
from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import LEAST_BUSY, Speculation
from outrider.cluster.config.config_actors import MAX_SLOTS
from outrider.cluster.config.config_errors import (
    SECTION,
    WORD,
    ConfigError,
    ConfigProblem,
    problems_of,
)
from outrider.cluster.config.config_file import read_mapping
from outrider.cluster.config.config_section import NAME, Section
from outrider.cluster.simulate.prices import Prices
from outrider.cluster.simulate.simulated_device import MAX_CONTEXT, table_of
from outrider.cluster.validation.rules import rules
from outrider.v1 import sampling_pb2

_RULES = rules(sampling_pb2.SpeculationOptions.DESCRIPTOR)

LONGEST_S = 86_400.0
"""Virtual seconds of a scenario, at most."""

MAX_CLIENTS = 100_000
"""Of a step of the load."""

OF_ONE_FAULT = {"factor": "slows", "link": "link", "cores": "cores", "model": "misleads"}
"""Keys that say something of one kind of fault only, which is told."""

Seconds = Annotated[float, Field(ge=0.0, le=LONGEST_S)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Slots = Annotated[int, Field(ge=1, le=min(MAX_SLOTS, MAX_CLIENTS))]
"""As many as a service may be given and a scenario may have clients."""
Nodes = Annotated[int, Field(ge=1, le=int(_RULES["max_nodes"].most))]
"""Of a tree, as requests may ask for."""
Depth = Annotated[int, Field(ge=1, le=int(_RULES["max_depth"].most))]
Drafters = Annotated[int, Field(ge=1, le=int(_RULES["drafters_at_work"].most))]
Name = Annotated[str, Field(pattern=NAME)]

COORDINATOR = "coordinator"
"""Name of the one coordinator."""


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
    slots: Slots = 64
    machine: Name | None = None
    """Whose cores its process shares; None: it has enough of its own."""
    on_cores: bool = False
    """Its passes take a core of the machine, as those of models without a GPU do."""
    gpu: Name | None = None
    """Whose passes take turns with its own: those of all actors that name the same. None: it has a GPU of its own."""

    @model_validator(mode="after")
    def _exists(self) -> Actor:
        find_profile(self.profile)
        table_of(self.model)
        return self


class ScenarioDrafter(Actor):
    """A drafter and its way to the targets."""

    entry: Name | None = None
    """Drafters of the same are replicas, of which one drafts for a text; None: it has none."""
    targets: Annotated[tuple[Name, ...] | None, Field(strict=False)] = None
    """For whom it drafts; None: for all."""
    link: Link = Link()
    bytes_per_token: Annotated[float, Field(gt=0.0)] | None = None
    """As the drafter's setting; None: its default."""


class Load(Section):
    """Clients that ask again as soon as they are answered, until the next step."""

    at_s: Seconds = 0.0
    clients: Annotated[int, Field(ge=0, le=MAX_CLIENTS)]
    tokens: Count = 256
    prompt: Count = 32
    """Tokens."""
    speculates: bool = True
    """False: these requests want no speculation."""


class Wave(Section):
    """Requests that come all at once, again and again."""

    at_s: Seconds
    requests: Count
    every_s: Annotated[float, Field(ge=0.001)] | None = None
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

    @model_validator(mode="after")
    def _says_enough(self) -> Fault:
        wanted = {"pauses": "seconds", "link": "link", "cores": "cores"}.get(self.what)
        if wanted is not None and getattr(self, wanted) is None:
            raise ValueError(f"a fault that is {self.what!r} needs the key {wanted!r}")
        for key, what in OF_ONE_FAULT.items():
            if key in self.model_fields_set and self.what != what:
                raise ValueError(
                    f"the key {key!r} is of {what!r} and does nothing to {self.what!r}"
                )
        if self.model is not None:
            table_of(self.model)
        return self


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
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    seconds: Annotated[float, Field(gt=0.0, le=LONGEST_S)]
    """Virtual."""
    targets: Annotated[tuple[Actor, ...], Field(min_length=1, strict=False)]
    drafters: Annotated[tuple[ScenarioDrafter, ...], Field(strict=False)] = ()
    machines: dict[Name, Count] = Field(default_factory=dict)
    """Cores of each."""
    coordinator_machine: Name | None = None
    prices: Annotated[
        Annotated[Literal["measured", "free"], Tag(WORD)] | Annotated[Prices, Tag(SECTION)],
        Discriminator(lambda asked: WORD if isinstance(asked, str) else SECTION),
    ] = "measured"
    """What processor time costs. Numbers of its own keep a scenario the same when prices are measured again."""
    temperature: Annotated[float, Field(ge=0.0, le=5.0)] = 0.8
    verifier: str = Field("coupled", strict=False)
    selector: str = Field(LEAST_BUSY, strict=False)
    drafters_at_work: Drafters | None = None
    """As the options of a request."""
    max_nodes: Nodes = Speculation().max_nodes
    max_depth: Depth = Speculation().max_depth
    adaptive: bool = True
    """False: drafters always work, as with the setting of this name."""
    load: Annotated[tuple[Load, ...], Field(strict=False)] = ()
    waves: Annotated[tuple[Wave, ...], Field(strict=False)] = ()
    faults: Annotated[tuple[Fault, ...], Field(strict=False)] = ()
    bounds: Bounds = Bounds()

    @model_validator(mode="after")
    def _fits(self) -> Scenario:
        actors = (*self.targets, *self.drafters)
        names = [COORDINATOR, *(one.name for one in actors), *self.machines]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two of coordinator, actors and machines are called {name!r}")
        for name, machine in (
            (COORDINATOR, self.coordinator_machine),
            *((one.name, one.machine) for one in actors),
        ):
            if machine is not None and machine not in self.machines:
                raise ValueError(f"machine {machine!r} of {name} is not among machines")
        for one in actors:
            if one.on_cores and one.machine is None:
                raise ValueError(f"{one.name} computes on cores, but has no machine")
            if one.on_cores and one.gpu is not None:
                raise ValueError(f"{one.name} computes on cores and on gpu {one.gpu!r}; choose one")
        for drafter in self.drafters:
            for name in drafter.targets or ():
                if name not in [one.name for one in self.targets]:
                    raise ValueError(f"{drafter.name} drafts for {name!r}, which is no target")
        for fault in self.faults:
            self._check(fault)
        self._check_models()
        asked: tuple[Load | Wave, ...] = (*self.load, *self.waves)
        for asks in asked:
            if asks.prompt + asks.tokens > MAX_CONTEXT:
                raise ValueError(
                    f"a request of {asks.prompt} + {asks.tokens} tokens; prompt and tokens may be "
                    f"{MAX_CONTEXT} together"
                )
        if self.verifier not in VERIFIERS:
            raise ValueError(
                f"there is no verifier {self.verifier!r}; there are {', '.join(VERIFIERS)}"
            )
        if self.selector not in SELECTORS:
            raise ValueError(
                f"there is no selector {self.selector!r}; there are {', '.join(SELECTORS)}"
            )
        if not self.waves and not any(step.clients for step in self.load):
            raise ValueError("nobody asks for anything: there are no waves, and no clients in load")
        self._check_times()
        return self

    def _check_times(self) -> None:
        """Refuses what begins when the scenario has ended: its bounds would hold without it."""
        kinds: dict[str, tuple[Load | Wave | Fault, ...]] = {
            "load": self.load,
            "waves": self.waves,
            "faults": self.faults,
        }
        for kind, events in kinds.items():
            for place, event in enumerate(events):
                if event.at_s >= self.seconds:
                    raise ValueError(
                        f"{kind}[{place}] begins at {event.at_s:g} s, when the scenario has ended: it has {self.seconds:g}"
                    )

    def _check(self, fault: Fault) -> None:
        """Refuses a fault that cannot happen to whom it names."""
        drafters = [one.name for one in self.drafters]
        actors = [*(one.name for one in self.targets), *drafters]
        if fault.who not in (*self.machines, *actors):
            raise ValueError(f"{fault.who!r} of a fault is neither an actor nor a machine")
        kind, able = {
            "cores": ("a machine", list(self.machines)),
            "misleads": ("a drafter", drafters),
            "cut": ("a drafter", drafters),
            "link": ("a drafter", drafters),
        }.get(fault.what, ("an actor", actors))
        if fault.who not in able:
            raise ValueError(f"{fault.what!r} happens to {kind}, which {fault.who!r} is not")

    def _check_models(self) -> None:
        """Refuses targets of several models, since requests name none, and laws of drafters that have other tokens."""
        target = self.targets[0]
        for one in self.targets:
            if one.model != target.model:
                raise ValueError(
                    f"{target.name} decodes {target.model} and {one.name} {one.model}; requests go to any target, so all "
                    "must decode the same"
                )
        wanted = Vocabulary(size=table_of(target.model).vocab_size)
        laws = [(one.name, one.model) for one in self.drafters]
        laws += [(one.who, one.model) for one in self.faults if one.model is not None]
        for name, model in laws:
            own = Vocabulary(size=table_of(model).vocab_size)
            if problem := difference(own, wanted, target_name=target.name):
                raise ValueError(f"{name} cannot follow {model}: {problem}")

    def speculation(self, *, enabled: bool) -> Speculation:
        """What requests ask for."""
        return Speculation(
            enabled=enabled,
            verifier=self.verifier,
            max_nodes=self.max_nodes,
            max_depth=self.max_depth,
            selector=self.selector,
            drafters_at_work=self.drafters_at_work,
        )


def load_scenario(file: Path) -> Scenario:
    """Reads a scenario.

    Raises:
        ConfigError: It cannot be read or is no scenario; every problem is named.
    """
    data = read_mapping(file)
    data.setdefault("name", file.stem)
    try:
        return Scenario.model_validate(data)
    except ValidationError as error:
        raise ConfigError(str(file), problems_of(error, Scenario)) from None
    except ValueError as error:
        raise ConfigError(str(file), (ConfigProblem("", str(error)),)) from None
