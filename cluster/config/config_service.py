"""The sections that hold for the whole service."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from outrider.actors.process.logs import LogFormat
from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import COUPLED, LEAST_BUSY, Speculation
from outrider.actors.speculation.policies import (
    DraftPolicies,
    LengthChoice,
    RootPolicy,
)
from outrider.cluster.config.config_section import NAME, Seconds, Section
from outrider.cluster.config.host_port import check_url, is_host, is_same_host, split_host_port
from outrider.cluster.config.resource_amounts import Resources
from outrider.cluster.validation.rules import bounds
from outrider.v1 import sampling_pb2


class ServiceConfig(Section):
    """What clients see."""

    listen: str = "127.0.0.1:50051"
    """Address of the public gRPC service, HOST:PORT; port 0 takes a free one. Only loopback unless set otherwise."""

    advertise: str | None = None
    """Host that clients reach the service at. None: the host of `listen`."""

    coordinators: int = Field(default=1, ge=1, le=100)
    """Coordinators, spread over the nodes: each listens at the port of `listen`; those on one node share it. Any of them can go on
    with a stream that another one has lost."""

    reflection: bool = True
    """Offers gRPC server reflection on the public port. Internal ports do always, to whoever has the service's secret."""

    metrics: str | None = None
    """Address of `GET /metrics` for Prometheus, HOST:PORT, at the supervisor; port 0 takes a free one. None: not served. It asks
    nobody who they are: give it an address that only the monitoring reaches."""

    otlp_endpoint: str | None = Field(default=None, pattern=r"^https?://")
    """URL of an OpenTelemetry collector's gRPC port, for instance http://127.0.0.1:4317, that spans of requests go to. None: as
    `OTEL_EXPORTER_OTLP_ENDPOINT` says where coordinators run. Needs the extra `otel`."""

    log_format: LogFormat | None = None
    """How actors write logs: `console`, lines for people, or `json`, one object a line. None: as the variable
    OUTRIDER_LOG_FORMAT says, else `console`."""

    default_max_tokens: int = Field(default=256, ge=1, le=1_000_000)
    """Output tokens of a request that does not say how many."""

    max_waiting: int = Field(default=64, ge=0, le=100_000)
    """Requests that may wait for a free slot; more are refused with RESOURCE_EXHAUSTED."""

    prefix_reuse: bool = True
    """A prompt that begins as an earlier one did is not computed again as far as that is still in a slot. The time to the
    first token then tells whether somebody asked the same before: set it to false where clients must not learn that of
    each other."""

    @model_validator(mode="after")
    def _check_ports(self) -> Self:
        if self.metrics is None:
            return self
        (host, port), (other, same) = split_host_port(self.listen), split_host_port(self.metrics)
        if port == same != 0 and is_same_host(host, other):
            raise ValueError(
                f"listen and metrics are both at port {port}; give one of them another"
            )
        return self

    @field_validator("listen", "metrics")
    @classmethod
    def _check_listen(cls, value: str | None) -> str | None:
        if value is not None:
            split_host_port(value)
        return value

    @field_validator("advertise")
    @classmethod
    def _check_host(cls, value: str | None) -> str | None:
        if value is not None and not is_host(value):
            raise ValueError(f"is {value!r}; expected a host, without a port")
        return value

    @field_validator("otlp_endpoint")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None:
            check_url(value)
        return value


class Restarts(Section):
    """An actor that dies is started again, for ever, with growing pauses."""

    backoff_s: Seconds = 0.5
    """Wait before the first restart; doubled with each further one in a row."""

    max_backoff_s: Seconds = 30.0
    """Longest wait before a restart."""

    healthy_after_s: Seconds = 60.0
    """An actor that lived this long has its restarts counted from zero."""


class ClusterConfig(Section):
    """Ray, and how actors are placed and watched."""

    address: str = "local"
    """`local` starts a Ray of our own and ends it with the service; `auto` or HOST:PORT joins a running one. Start the nodes of
    such a one with `RAY_worker_niceness=0`: Ray's own value, 15, makes event loops and arithmetic alike."""

    namespace: str = Field(default="outrider", pattern=NAME)
    """Ray namespace: two services in one Ray cluster need two."""

    auth: Literal["token", "disabled"] = "token"
    """Ray's authentication. With `local` a fresh token is made; a cluster that is joined has its own, found as Ray does."""

    local_resources: Resources = Field(default_factory=dict)
    """Custom resources that our own Ray (`address: local`) declares."""

    local_dashboard: bool = False
    """Starts Ray's dashboard and job server with our own Ray, on a free loopback port."""

    placement: Literal["spread", "pack"] = "spread"
    """Whether replicas go to different nodes of a cluster or to the same, where there is room."""

    drafters_on_targets: Literal["auto", "always", "never"] = "auto"
    """Whether drafters may run on nodes that hold a target: `auto` if no other node has room, `always` as on any other, `never`."""

    placement_timeout_s: Seconds = 60.0
    """How long to wait for nodes with room for the actors. Where a cluster grows by itself, longer than a new node takes."""

    start_timeout_s: Seconds = 300.0
    """How long an actor may take to load its model and listen."""

    lease_s: float = Field(default=10.0, ge=1, le=600, allow_inf_nan=False)
    """An actor that is silent this long is taken for dead and restarted."""

    drain_s: float = Field(default=5.0, ge=0, le=3_600, allow_inf_nan=False)
    """How long running requests may go on after the service was told to end."""

    internal_host: Literal["auto", "loopback", "node"] = "auto"
    """Where actors listen for each other: `loopback`, the `node` address that Ray knows, or `auto`: loopback with our own
    Ray, else the node address."""

    restarts: Restarts = Restarts()
    """What happens when an actor dies."""

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str) -> str:
        if value not in ("local", "auto"):
            try:
                split_host_port(value)
            except ValueError:
                raise ValueError(f"is {value!r}; allowed: local, auto, HOST:PORT") from None
        return value


class Autoscaling(Section):
    """When the number of replicas changes. Names and defaults are those of Ray Serve, where they mean the same."""

    interval_s: Seconds = 5.0
    """How often the load is looked at. A look asks every actor for its metrics, which takes it milliseconds."""

    upscale_delay_s: Seconds = 30.0
    """How long there must be too few without a break before more are started."""

    downscale_delay_s: Seconds = 600.0
    """How long there must be too many without a break before some are ended. Longer than the pauses of the load, because a model
    takes long to load."""

    target_occupancy: float = Field(default=0.8, ge=0.1, le=1.0)
    """Share of the slots that texts may hold, those that wait counted, before there are too few replicas."""

    drain_s: float = Field(default=600.0, ge=0, le=86_400, allow_inf_nan=False)
    """How long texts may go on at a target that is ended because there is little to do. It ends when they have ended."""


def _number(name: str) -> Any:
    """A number of requests: its default, and the interval that the contract gives it."""
    interval: dict[str, Any] = bounds(sampling_pb2.SpeculationOptions.DESCRIPTOR, name)
    default: Any = getattr(_DEFAULTS if hasattr(_DEFAULTS, name) else _DEFAULTS.policies, name)
    return Field(default, **interval)


_DEFAULTS = Speculation()


class SpeculationConfig(Section):
    """What a request gets that does not say otherwise."""

    enabled: bool = True
    """False decodes plainly."""

    verifier: str = Field(default=COUPLED, json_schema_extra={"enum": list(VERIFIERS)})
    """How candidates are verified."""

    max_nodes: int = _number("max_nodes")
    """Candidate nodes in one target pass of a session, at most."""

    max_depth: int = _number("max_depth")
    """Depth of the candidate tree, at most."""

    draft_length: LengthChoice = LengthChoice.FULL
    """When drafters stop: `full`, `confidence` or `decision`. Only drafters that offer it take part."""

    roots: RootPolicy = RootPolicy.DRAFT
    """Where trees begin: `draft` or `target`; `draft` for verifiers of frozen trees, whatever is said here."""

    aggressiveness: float = _number("aggressiveness")
    """Factor of the length that confidence allows."""

    decision_threshold: float = _number("decision_threshold")
    """Score above which the decision model goes on."""

    selector: str = Field(default=LEAST_BUSY, json_schema_extra={"enum": list(SELECTORS)})
    """How drafters are chosen where fewer may work for a text than there are."""

    drafters_at_work: int | None = _number("drafters_at_work")
    """Drafters that work for a text at a time, at most. None: as many as the selector keeps at work."""

    adaptive: bool = True
    """True: now and then the target decodes a few rounds plainly to compare, and drafters rest while that is faster."""

    lockstep: bool = False
    """True: drafter and target wait for each other, as other engines do; slower, for comparison."""

    @field_validator("verifier", "selector")
    @classmethod
    def _is_known(cls, name: str, field: ValidationInfo) -> str:
        known = VERIFIERS if field.field_name == "verifier" else SELECTORS
        if name not in known:
            raise ValueError(f"is {name!r}; choose among {', '.join(known)}")
        return name

    @property
    def options(self) -> Speculation:
        """The same as options of a request."""
        own: dict[str, Any] = {
            "verifier_options": VERIFIERS[self.verifier].settled({}),
            "policies": self.policies,
        }
        return Speculation(**_of(self, Speculation), **own)

    @property
    def policies(self) -> DraftPolicies:
        """The drafting policies together."""
        return DraftPolicies(**_of(self, DraftPolicies))


def _of(section: Section, kind: type[Any]) -> dict[str, Any]:
    """What a section says of the fields of a class of options."""
    return {
        field.name: getattr(section, field.name)
        for field in fields(kind)
        if field.name in type(section).model_fields
    }
