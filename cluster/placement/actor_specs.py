"""The actors that a configuration asks for: names, roles, resources and settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outrider.actors.draft.state.draft_settings import LOOKUP_SLOTS, DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.cluster.config.config_actors import DrafterConfig, TargetConfig
from outrider.cluster.config.coordinator_settings import CoordinatorSettings, FurtherModel
from outrider.cluster.config.host_port import join_host_port, split_host_port
from outrider.cluster.config.schema import Config
from outrider.cluster.roster.roster import ReplicaScale, Role

ActorSettings = TargetSettings | DraftSettings | CoordinatorSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorSpec:
    """One actor to keep alive."""

    name: str
    """Its name, unique in the service."""

    role: Role
    """What it does."""

    model: str
    """The model it holds, as clients know it; for a drafter its own name in the configuration."""

    settings: ActorSettings
    """What it is told. Its incarnation and, for workers, its address are set at each start."""

    resources: Mapping[str, float] = field(default_factory=dict)
    """What Ray reserves for it; nothing for an actor that fits anywhere."""

    deployment: str = ""
    """Which model it serves: coordinators use targets of the same only. Empty for drafters."""

    node_labels: Mapping[str, str] = field(default_factory=dict)
    """What its node's labels must be; see `node_labels`."""


def actor_specs(config: Config, replicas: Mapping[str, int] | None = None) -> tuple[ActorSpec, ...]:
    """Every actor of a service: the targets, the drafters, and the coordinators last.

    Args:
        config: The service.
        replicas: How many of each target and drafter, by its name in the configuration. None, or not named: as many as start.
    """
    counts = replicas or {}
    targets = [
        _target(config, target, name)
        for target in config.targets
        for name in target.replica_names(counts.get(target.name, target.start))
    ]
    drafters = [
        _drafter(config, drafter, name)
        for drafter in config.drafters
        for name in drafter.replica_names(counts.get(drafter.name, drafter.start))
    ]
    coordinators = [_coordinator(config, name) for name in config.coordinator_names]
    return (*targets, *drafters, *coordinators)


def starting(config: Config) -> dict[str, int]:
    """How many replicas of each target and drafter start, by its name in the configuration."""
    return {actor.name: actor.start for actor in (*config.targets, *config.drafters)}


def kept(before: Config, after: Config, replicas: Mapping[str, int]) -> dict[str, int]:
    """How many replicas there should be when the configuration changes: as many as there are, within the new bounds, unless it
    says another number than before."""
    former, found = starting(before), starting(after)
    for actor in (*after.targets, *after.drafters):
        if former.get(actor.name) == actor.start:
            count = replicas.get(actor.name, actor.start)
            found[actor.name] = min(max(count, actor.least), actor.most)
    return found


def scales(config: Config, replicas: Mapping[str, int]) -> dict[str, ReplicaScale]:
    """How many of each target and drafter there are and may be, by its name in the configuration."""
    roles = ((Role.TARGET, config.targets), (Role.DRAFTER, config.drafters))
    return {
        actor.name: ReplicaScale(
            entry=actor.name,
            role=role,
            least=actor.least,
            most=actor.most,
            wanted=replicas[actor.name],
        )
        for role, actors in roles
        for actor in actors
    }


def for_start(
    spec: ActorSpec, *, incarnation: int, host: str, credentials: Credentials = OPEN
) -> ActorSettings:
    """The settings of one start. Workers listen on a free port of `host`; a coordinator where its settings say."""
    settings = replace(spec.settings, incarnation=incarnation, credentials=credentials)
    if isinstance(settings, CoordinatorSettings):
        return replace(settings, internal_listen=join_host_port(host, 0))
    return replace(settings, listen=join_host_port(host, 0))


def listening_at(spec: ActorSpec, address: str) -> ActorSpec:
    """The coordinator's spec after its first start: later ones take the same port, so that clients find it again."""
    host, _ = split_host_port(spec.settings.listen)
    _, port = split_host_port(address)
    return replace(spec, settings=replace(spec.settings, listen=join_host_port(host, port)))


def beside(spec: ActorSpec, other: ActorSpec) -> ActorSpec:
    """The spec of a coordinator that listens at the port of another one, which goes on listening there."""
    mine, theirs = spec.settings, other.settings
    if not isinstance(mine, CoordinatorSettings) or not isinstance(theirs, CoordinatorSettings):
        return spec
    return replace(spec, settings=replace(mine, listen=theirs.listen, shares_port=True))


def _target(config: Config, target: TargetConfig, name: str) -> ActorSpec:
    settings = TargetSettings(
        name=name,
        incarnation=0,
        model_name=target.name,
        engine=_engine(target, target.model),
        prefill_chunk=target.prefill_chunk,
        max_batch_nodes=target.max_batch_nodes,
        max_patience_s=target.max_patience_s,
        adaptive=config.speculation.adaptive,
        lockstep=config.speculation.lockstep,
        prefix_reuse=config.service.prefix_reuse,
    )
    return ActorSpec(
        name=name,
        role=Role.TARGET,
        model=target.name,
        settings=settings,
        resources=_resources(target),
        deployment=_deployment(target),
        node_labels=target.node_labels,
    )


def _drafter(config: Config, drafter: DrafterConfig, name: str) -> ActorSpec:
    settings = DraftSettings(
        name=name,
        incarnation=0,
        method=drafter.method,
        options=drafter.options,
        engine=_engine(drafter, drafter.model) if drafter.model is not None else None,
        num_slots=LOOKUP_SLOTS if drafter.num_slots == "auto" else drafter.num_slots,
        width=drafter.width,
        max_ahead=drafter.max_ahead,
        bytes_per_token=drafter.bytes_per_token,
        prefill_chunk=drafter.prefill_chunk,
        lockstep=config.speculation.lockstep,
        prefix_reuse=config.service.prefix_reuse,
    )
    return ActorSpec(
        name=name,
        role=Role.DRAFTER,
        model=drafter.name,
        settings=settings,
        resources=_resources(drafter),
        node_labels=drafter.node_labels,
    )


def _coordinator(config: Config, name: str) -> ActorSpec:
    target, *others = config.targets
    public = config.security.public
    settings = CoordinatorSettings(
        name=name,
        incarnation=0,
        listen=config.service.listen,
        shares_port=config.service.coordinators > 1,
        deployment=_deployment(target),
        advertise_host=config.service.advertise,
        tls=public.tls if public is not None else None,
        tokens=(public.tokens or "") if public is not None else "",
        tokenizer="" if target.model.startswith("tabular:") else target.model,
        allow_remote_code=target.allow_remote_code,
        model_name=target.name,
        further=tuple(FurtherModel(name=one.name, deployment=_deployment(one)) for one in others),
        default_max_tokens=config.service.default_max_tokens,
        max_waiting=config.service.max_waiting,
        reflection=config.service.reflection,
        otlp_endpoint=config.service.otlp_endpoint,
        emulated=", ".join(config.emulated),
        speculation=config.speculation.options,
    )
    return ActorSpec(
        name=name,
        role=Role.COORDINATOR,
        model=target.name,
        settings=settings,
        deployment="; ".join(map(_deployment, config.targets)),
    )


def _deployment(target: TargetConfig) -> str:
    """Names what decides the text: another model or another type is another deployment."""
    return f"{target.name}={target.model} {target.dtype}"


def _engine(actor: TargetConfig | DrafterConfig, model: str) -> EngineSettings:
    return EngineSettings(
        model=model,
        dtype=actor.dtype,
        device=actor.device,
        num_slots=None if actor.num_slots == "auto" else actor.num_slots,
        max_context=None if actor.max_context == "auto" else actor.max_context,
        gpu_share=min(1.0, actor.gpus) or 1.0,
        max_scratch=actor.max_scratch,
        num_threads=actor.threads,
        niceness=actor.niceness,
        allow_remote_code=actor.allow_remote_code,
        direct_forward=actor.direct_forward,
        cuda_graphs=actor.cuda_graphs,
    )


def _resources(actor: TargetConfig | DrafterConfig) -> dict[str, float]:
    wanted = {"CPU": actor.num_cpus, "GPU": actor.gpus, **actor.resources}
    return {kind: amount for kind, amount in wanted.items() if amount > 0}
