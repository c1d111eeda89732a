"""The configuration: one YAML or JSON file, and nothing else. Every default is a service that runs on two cores.

Read once, at the edge (`load_config`), and never changed. Who asks for a value out of bounds or for a key that does not
exist is told all problems at once (`config_errors`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from outrider.actors.speculation.options import Verifier
from outrider.actors.speculation.policies import (
    MAX_AGGRESSIVENESS,
    DraftLength,
    DraftPolicies,
    Roots,
    TreeMask,
)
from outrider.cluster.config_errors import ConfigError, Problem, problems_of
from outrider.cluster.config_file import read_mapping
from outrider.cluster.host_port import split_host_port

DEMO_TARGET = "demo:target"
"""The shipped target model."""

DEMO_DRAFT = "demo:draft"
"""The shipped draft model."""

PROMPT_LOOKUP = "prompt_lookup"
"""The drafting method that needs no model; as `--draft` it stands for itself."""

COORDINATOR = "coordinator"
"""Name of the coordinator; no target or drafter may have it."""

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )


class Service(_Section):
    """What clients see."""

    listen: str = "127.0.0.1:50051"
    """Address of the public gRPC service, HOST:PORT; port 0 takes a free one. Only loopback unless set otherwise."""

    advertise: str | None = None
    """Host that clients reach the service at. None: the host of `listen`."""

    reflection: bool = True
    """Offers gRPC server reflection on every port."""

    default_max_tokens: int = Field(default=256, ge=1, le=1_000_000)
    """Output tokens of a request that does not say how many."""

    max_waiting: int = Field(default=64, ge=0, le=100_000)
    """Requests that may wait for a free slot; more are refused with RESOURCE_EXHAUSTED."""

    prefix_reuse: bool = True
    """A prompt that begins as an earlier one did is not computed again as far as that is still in a slot. The time to the
    first token then tells whether somebody asked the same before: set it to false where clients must not learn that of
    each other."""

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        split_host_port(value)
        return value


class Restarts(_Section):
    """What happens when an actor dies."""

    max_restarts: int = Field(default=10, ge=0, le=1_000_000)
    """Restarts in a row before the actor is given up; the others go on."""

    backoff_s: Seconds = 0.5
    """Wait before the first restart; doubled with each further one in a row."""

    max_backoff_s: Seconds = 30.0
    """Longest wait before a restart."""

    healthy_after_s: Seconds = 60.0
    """An actor that lived this long starts counting its restarts anew."""


class Cluster(_Section):
    """Ray, and how actors are placed and watched."""

    address: str = "local"
    """`local` starts a Ray of our own and ends it with the service; `auto` or HOST:PORT joins a running one. Start the nodes of
    such a one with `RAY_worker_niceness=0`: Ray's own value, 15, makes event loops and arithmetic alike."""

    namespace: str = Field(default="outrider", pattern=_NAME)
    """Ray namespace: two services in one Ray cluster need two."""

    auth: Literal["token", "disabled"] = "token"
    """Ray's authentication. With `local` a fresh token is made; a cluster that is joined has its own, found as Ray does."""

    local_resources: dict[str, Amount] = Field(default_factory=dict)
    """Custom resources that our own Ray (`address: local`) declares."""

    local_dashboard: bool = False
    """Starts Ray's dashboard and job server with our own Ray, on a free loopback port."""

    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = "PACK"
    """Strategy of the placement group that holds the actors, in Ray's words."""

    placement_timeout_s: Seconds = 60.0
    """How long to wait for the resources of all actors."""

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


class _Actor(_Section):
    name: str = Field(default="", pattern=_NAME)
    """Its name, unique in the service. By default made from the model."""

    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type of weights and cache."""

    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    """`cpu`, `cuda` or `cuda:N`, counted among the devices that Ray gives the actor."""

    num_slots: int = Field(default=16, ge=1, le=4_096)
    """Sessions it can hold at a time."""

    max_context: int | None = Field(default=None, ge=2, le=10_000_000)
    """Longest sequence, prompt and output. None: as the model's configuration says."""

    max_scratch: int = Field(default=320, ge=2, le=65_536)
    """Tree nodes that a slot can hold behind the committed rows; bounds prefill chunks and trees."""

    prefill_chunk: int = Field(default=256, ge=1, le=65_536)
    """Prompt tokens in one pass, at most."""

    num_threads: int | None = Field(default=None, ge=1, le=1_024)
    """Threads of the arithmetic on a CPU. None: `num_cpus`, at least one."""

    allow_remote_code: bool = False
    """Runs code from the model's repository."""

    cuda_graphs: Literal["auto", "on", "off"] = "auto"
    """On a GPU, whether small passes are recorded and replayed: `auto` as far as the model can be, `on` or not start, `off`."""

    replicas: int = Field(default=1, ge=1, le=1_000)
    """How many actors to start."""

    num_cpus: Amount = 1.0
    """CPUs that Ray reserves for each."""

    num_gpus: Amount | None = None
    """GPUs that Ray reserves for each; may be a fraction. None: one with a `cuda` device, else none."""

    resources: dict[str, Amount] = Field(default_factory=dict)
    """Custom resources that Ray reserves for each, for instance `{target_node: 1}`."""

    @property
    def gpus(self) -> float:
        """GPUs to reserve for one replica."""
        if self.num_gpus is not None:
            return self.num_gpus
        return 1.0 if self.device.startswith("cuda") else 0.0

    @property
    def replica_names(self) -> tuple[str, ...]:
        """The name of each replica; a single one has the plain name."""
        if self.replicas == 1:
            return (self.name,)
        return tuple(f"{self.name}-{index}" for index in range(self.replicas))

    @property
    def threads(self) -> int:
        """Threads of the arithmetic of one replica."""
        return self.num_threads or max(1, int(self.num_cpus))

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        if self.device.startswith("cuda") and self.gpus == 0:
            raise ValueError(f"num_gpus is 0 with device {self.device}: reserve a GPU or use cpu")
        if self.prefill_chunk > self.max_scratch:
            raise ValueError(
                f"prefill_chunk is {self.prefill_chunk} and max_scratch {self.max_scratch}: "
                "a chunk must fit into the scratch rows"
            )
        return self


class Target(_Actor):
    """A target model."""

    model: str = Field(min_length=1)
    """Folder or hub id of a transformers model, `demo:NAME`, or `tabular:FILE`."""

    niceness: int = Field(default=5, ge=0, le=19)
    """Niceness of the arithmetic's threads on a CPU, so that event loops come first."""

    max_batch_nodes: int = Field(default=256, ge=1, le=65_536)
    """Tree nodes in one pass over all sessions, at most."""

    max_patience_s: float = Field(default=0.5, ge=0, le=60, allow_inf_nan=False)
    """How long a free target waits for candidates, at most."""


class Drafter(_Actor):
    """A drafter."""

    method: str = "autoregressive"
    """`autoregressive` (a draft model) or `prompt_lookup` (no model)."""

    model: str | None = Field(default=None, min_length=1)
    """Folder or hub id of a transformers model, `demo:NAME`, or `tabular:FILE`; none with `prompt_lookup`."""

    niceness: int = Field(default=15, ge=0, le=19)
    """Niceness of the arithmetic's threads on a CPU: above that of the target, which must not wait."""

    width: int = Field(default=4, ge=1, le=1_024)
    """Children of a node, at most."""

    expand: int = Field(default=8, ge=1, le=1_024)
    """Nodes of one session that one draft pass expands, at most."""

    max_ahead: int = Field(default=64, ge=1, le=65_536)
    """Nodes of one session below its committed text, at most."""

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        methods = ("autoregressive", PROMPT_LOOKUP)
        if self.method not in methods:
            raise ValueError(f"method is {self.method!r}; allowed: {', '.join(methods)}")
        if self.method == PROMPT_LOOKUP and self.model is not None:
            raise ValueError(f"model is {self.model!r}, but prompt_lookup drafts without one")
        if self.method != PROMPT_LOOKUP and self.model is None:
            raise ValueError(f"model is missing: {self.method} drafts with one")
        return self


class Speculation(_Section):
    """What a request gets that does not say otherwise."""

    enabled: bool = True
    """False decodes plainly."""

    verifier: Verifier = Verifier.COUPLED
    """How candidates are verified."""

    max_nodes: int = Field(default=16, ge=1, le=4_096)
    """Candidate nodes in one target pass of a session, at most."""

    max_depth: int = Field(default=8, ge=1, le=1_024)
    """Depth of the candidate tree, at most."""

    draft_length: DraftLength = DraftLength.FULL
    """When drafters stop: `full`, `confidence` or `decision`. Only drafters that offer it take part."""

    roots: Roots = Roots.DRAFT
    """Where trees begin: `draft` or `target`; `draft` for verifiers of frozen trees, whatever is said here."""

    tree_mask: TreeMask = TreeMask.SLICED
    """How masks of growing trees are made: `sliced` or `built`."""

    aggressiveness: float = Field(default=1.0, gt=0.0, le=MAX_AGGRESSIVENESS)
    """Factor of the length that confidence allows."""

    decision_threshold: float = Field(default=0.4, ge=0.0, le=1.0)
    """Score above which the decision model goes on."""

    adaptive: bool = True
    """True: now and then the target decodes a few rounds plainly to compare, and drafters rest while that is faster."""

    lockstep: bool = False
    """True: drafter and target wait for each other, as other engines do; slower, for comparison."""

    @property
    def policies(self) -> DraftPolicies:
        """The drafting policies together."""
        return DraftPolicies(
            draft_length=self.draft_length,
            roots=self.roots,
            tree_mask=self.tree_mask,
            aggressiveness=self.aggressiveness,
            decision_threshold=self.decision_threshold,
        )


class Config(_Section):
    """A service. Without `targets` and `drafters` it is the demonstration pair."""

    service: Service = Service()
    """What clients see."""

    cluster: Cluster = Cluster()
    """Ray, and how actors are placed and watched."""

    targets: tuple[Target, ...]
    """The target model, one. Given without `drafters`, it decodes plainly."""

    drafters: tuple[Drafter, ...] = ()
    """The drafters; each may serve every target with its tokenizer."""

    speculation: Speculation = Speculation()
    """What a request gets that does not say otherwise."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if not self.targets:
            raise ValueError("targets is empty: name at least one model, or leave the key out")
        if len(self.targets) > 1:
            raise ValueError(
                f"targets holds {len(self.targets)} models, and a service serves one: "
                "start another service for the others, or set replicas for more of the same"
            )
        taken: dict[str, str] = {COORDINATOR: "the coordinator"}
        for kind, actors in (("targets", self.targets), ("drafters", self.drafters)):
            for index, actor in enumerate(actors):
                for name in dict.fromkeys((actor.name, *actor.replica_names)):
                    if name in taken:
                        raise ValueError(
                            f"{kind}[{index}].name {name!r} is taken by {taken[name]}; give it another name"
                        )
                    taken[name] = f"{kind}[{index}]"
        return self


def parse_config(data: Mapping[str, Any], *, source: str) -> Config:
    """The configuration in a mapping of plain values.

    Raises:
        ConfigError: Something is not allowed; names every problem, its place and what is allowed.
    """
    try:
        # As JSON, because strict mode then still takes arrays for tuples and strings for enumerations.
        return Config.model_validate_json(json.dumps(_filled(data), default=str))
    except ValidationError as error:
        raise ConfigError(source, problems_of(error, Config)) from None


def load_config(path: Path) -> Config:
    """The configuration in a file: JSON with the suffix `.json`, else YAML.

    Raises:
        ConfigError: The file cannot be read or parsed, or something in it is not allowed.
    """
    return parse_config(read_mapping(path), source=str(path))


def with_flags(
    data: Mapping[str, Any],
    *,
    targets: tuple[str, ...] = (),
    drafts: tuple[str, ...] = (),
    listen: str | None = None,
) -> dict[str, Any]:
    """A configuration's mapping with command line flags laid over it.

    `targets` and `drafts` replace the lists of the file. A target alone, without drafters in the file, decodes plainly.
    """
    merged = dict(data)
    if targets:
        merged["targets"] = [{"model": model} for model in targets]
    if drafts:
        merged["drafters"] = [
            {"method": PROMPT_LOOKUP} if draft == PROMPT_LOOKUP else {"model": draft}
            for draft in drafts
        ]
    if listen is not None:
        service = merged.get("service") or {}
        if not isinstance(service, Mapping):
            raise ConfigError("flags", (Problem("service", "must be a mapping of keys to values"),))
        merged["service"] = {**service, "listen": listen}
    return merged


def schema() -> dict[str, Any]:
    """The JSON schema of the configuration, for editors and checks."""
    generated = Config.model_json_schema()
    # The validator fills `targets` in, which the schema generator cannot see.
    generated["required"] = [key for key in generated.get("required", []) if key != "targets"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **generated}


def _filled(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fills in the demonstration pair where no target is given, and the names of actors that have none.

    Done before validation, not in a validator: what a validator returns is no longer JSON to strict mode.
    """
    filled = dict(data)
    if "targets" not in filled:
        filled["targets"] = [{"model": DEMO_TARGET}]
        filled.setdefault("drafters", [{"model": DEMO_DRAFT}])
    for kind in ("targets", "drafters"):
        if isinstance(filled.get(kind), list):
            filled[kind] = [_named(actor) for actor in filled[kind]]
    return filled


def _named(actor: Any) -> Any:
    if not isinstance(actor, Mapping) or "name" in actor:
        return actor
    origin = actor.get("model") or actor.get("method")
    return {**actor, "name": name_of(origin)} if isinstance(origin, str) and origin else actor


def name_of(model: str) -> str:
    """A model's short name: `demo:target` is demo-target, a hub id or a folder is its last part."""
    kind, _, rest = model.partition(":")
    if rest and kind == "demo":
        return f"demo-{rest}"
    path = PurePath(rest if rest and kind == "tabular" else model)
    last = path.stem if kind == "tabular" else path.name
    kept = "".join(
        char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in last
    )
    return kept.strip("._-")[:64] or "model"
