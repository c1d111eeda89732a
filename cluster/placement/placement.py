"""On which node of a Ray cluster each actor should run, and what to say if there is none. Pure.

Replicas are spread, so that the loss of a node takes few of them; drafters are kept off the nodes of targets, whose processors and
links they would share, and near a target, because candidates are worth less the later they come. These are preferences, in this
order, among the nodes that have the resources and labels that an actor asks for; Ray takes the first that has room.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from outrider.cluster.config.node_labels import NODE_ID, matches, none_of
from outrider.cluster.placement.actor_specs import ActorSpec
from outrider.cluster.roster.roster import Role

NEAREST_S = 50e-6
"""Round trips below this are as good as none."""

NEVER = "(cluster.drafters_on_targets: never); add nodes, or set it to auto"
"""Why a drafter gets none of the nodes that hold targets, and what to do."""

MAX_CHOICES = 4
"""Nodes that Ray is asked to try by name before it may take any."""


class PlacementError(RuntimeError):
    """The cluster has no room for an actor; says which resource or label is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """A living node of the Ray cluster."""

    node_id: str
    """Its id."""

    address: tuple[str, int]
    """Where Ray's own node manager listens."""

    resources: Mapping[str, float]
    """All that it has, taken or free."""

    labels: Mapping[str, str] = field(default_factory=dict)
    """Its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """One of our actors on a node."""

    role: Role
    model: str
    node_id: str
    resources: Mapping[str, float] = field(default_factory=dict)
    node_labels: Mapping[str, str] = field(default_factory=dict)
    """As its `ActorSpec` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPolicy:
    """What the configuration says about nodes."""

    replicas: Literal["spread", "pack"] = "spread"
    """Whether actors of one role and model go to different nodes or to the same."""

    drafters_on_targets: Literal["auto", "always", "never"] = "auto"
    """Drafters on nodes that hold a target: only if no other has room, as on any other, or not at all."""


RoundTrips = Mapping[tuple[str, str], float]
"""Seconds from one node to another and back, by their ids."""


def ranked(
    spec: ActorSpec,
    nodes: Sequence[NodeRoom],
    tenants: Collection[Tenant],
    policy: PlacementPolicy,
    *,
    round_trips: RoundTrips,
    own_node: str,
) -> list[str]:
    """Nodes that have room for an actor beside our own others, the best first.

    Args:
        spec: The actor.
        nodes: The living nodes.
        tenants: Our other actors.
        policy: What is preferred.
        round_trips: As far as measured; unknown ones count as the longest.
        own_node: Where the supervisor is: the first coordinator goes there, where the service's address is looked for.
    """
    targets = {tenant.node_id for tenant in tenants if tenant.role is Role.TARGET}

    fitting = [
        node
        for node in nodes
        if _fits(spec, node, _free(node, tenants)) and not _is_barred(spec, node, targets, policy)
    ]
    distances = _distances([node.node_id for node in fitting], targets, round_trips)

    def cost(node: NodeRoom) -> tuple[float, ...]:
        here = [tenant for tenant in tenants if tenant.node_id == node.node_id]
        alike = sum((one.role, one.model) == (spec.role, spec.model) for one in here)
        crowd = alike if policy.replicas == "spread" else -alike
        if spec.role is Role.DRAFTER:
            is_beside = node.node_id in targets and policy.drafters_on_targets == "auto"
            peers = sum(one.role is Role.DRAFTER for one in here)
            return (is_beside, distances[node.node_id], peers, len(here))
        if spec.role is Role.COORDINATOR:
            return (crowd, node.node_id != own_node, len(here))
        return (crowd, sum(one.role is Role.DRAFTER for one in here), len(here))

    return [node.node_id for node in sorted(fitting, key=cost)]


def selectors(
    spec: ActorSpec, best: Sequence[str], targets: Collection[str], policy: PlacementPolicy
) -> list[dict[str, str]]:
    """What to ask Ray for, one label selector after the other: the best nodes by id, then any that the actor may run on.

    Args:
        spec: The actor.
        best: Nodes, the best first.
        targets: Nodes that hold targets.
        policy: What is preferred.
    """
    asked = dict(spec.node_labels)
    chosen = [{**asked, NODE_ID: node_id} for node_id in best[:MAX_CHOICES]]
    if spec.role is Role.DRAFTER and policy.drafters_on_targets == "never" and targets:
        asked[NODE_ID] = none_of(targets)
    return [*chosen, asked]


def shortage(
    specs: Sequence[ActorSpec],
    nodes: Sequence[NodeRoom],
    policy: PlacementPolicy = PlacementPolicy(),
    tenants: Collection[Tenant] = (),
) -> str | None:
    """Why these actors cannot all be placed on these nodes beside our others, counting everything else as free; None if nothing
    stands against it.

    Finds what is certainly missing, not every misfit: Ray decides whether the actors fit together.
    """
    if tenants and shortage(specs, nodes, policy) is None:
        targets = {tenant.node_id for tenant in tenants if tenant.role is Role.TARGET}
        for spec in specs:
            fitting = [node for node in nodes if _fits(spec, node, node.resources)]
            if all(_is_barred(spec, node, targets, policy) for node in fitting):
                return f"every node that {spec.name!r} could run on holds a target {NEVER}"
        lacking = shortage(
            specs, [replace(node, resources=_free(node, tenants)) for node in nodes], policy
        )
        return f"{lacking} beside the actors that run" if lacking else None
    for spec in specs:
        lacking = _lacking(spec, nodes)
        if lacking is not None:
            return lacking
    for kind in sorted({kind for spec in specs for kind in spec.resources}):
        wanted = sum(spec.resources.get(kind, 0.0) for spec in specs)
        there = sum(node.resources.get(kind, 0.0) for node in nodes)
        if wanted > there:
            takers = ", ".join(spec.name for spec in specs if kind in spec.resources)
            return f"the actors need {wanted:g} {kind} together ({takers}), and the cluster has {there:g}"
    roles = {spec.role for spec in specs}
    if policy.drafters_on_targets == "never" and len(nodes) < 2 and Role.DRAFTER in roles:
        return f"drafters may not share a node with a target, and there is one node {NEVER}"
    return None


def _lacking(spec: ActorSpec, nodes: Sequence[NodeRoom]) -> str | None:
    """Why no single node can hold an actor."""
    labelled = [node for node in nodes if matches(spec.node_labels, node.labels)]
    if any(_fits(spec, node, node.resources) for node in labelled):
        return None
    needs = _shown(spec.resources)
    if not labelled and spec.node_labels:
        wanted = ", ".join(f"{key}={value}" for key, value in spec.node_labels.items())
        there = {
            f"{k}={node.labels[k]}" for node in nodes for k in spec.node_labels if k in node.labels
        }
        has = f"nodes have {', '.join(sorted(there))}" if there else "no node has such labels"
        return f"{spec.name!r} asks for a node with {wanted}, and {has}"
    among = " with its labels" if spec.node_labels else ""
    for kind, amount in sorted(spec.resources.items()):
        most = max((node.resources.get(kind, 0.0) for node in labelled), default=0.0)
        if most < amount:
            has = (
                f"the most that a node{among} has is {most:g}"
                if most
                else f"no node{among} has any"
            )
            return f"{spec.name!r} needs {amount:g} {kind}, and {has} (it asks for {needs})"
    return f"no single node{among} has all that {spec.name!r} asks for: {needs}"


def _fits(spec: ActorSpec, node: NodeRoom, free: Mapping[str, float]) -> bool:
    return matches(spec.node_labels, node.labels) and all(
        free.get(kind, 0.0) >= amount - 1e-6 for kind, amount in spec.resources.items()
    )


def _free(node: NodeRoom, tenants: Collection[Tenant]) -> dict[str, float]:
    """What our own actors leave of a node."""
    free = dict(node.resources)
    for tenant in tenants:
        if tenant.node_id == node.node_id:
            for kind, amount in tenant.resources.items():
                free[kind] = free.get(kind, 0.0) - amount
    return free


def _is_barred(
    spec: ActorSpec, node: NodeRoom, targets: Collection[str], policy: PlacementPolicy
) -> bool:
    is_apart = spec.role is Role.DRAFTER and policy.drafters_on_targets == "never"
    return is_apart and node.node_id in targets


def _distances(
    node_ids: Sequence[str], targets: Collection[str], round_trips: RoundTrips
) -> dict[str, float]:
    """How far each node is from its nearest target, in whole doublings of the shortest such round trip: smaller differences are noise."""
    known = [seconds for seconds in round_trips.values() if math.isfinite(seconds)]
    farthest = max(known, default=NEAREST_S)
    nearest = {
        node_id: min(
            (round_trips.get((node_id, target), farthest) for target in targets), default=NEAREST_S
        )
        for node_id in node_ids
        if node_id not in targets
    }
    shortest = max(min(nearest.values(), default=NEAREST_S), NEAREST_S)
    doublings = {
        node_id: math.floor(math.log2(max(min(seconds, farthest) / shortest, 1.0)))
        for node_id, seconds in nearest.items()
    }
    return {node_id: doublings.get(node_id, -1) for node_id in node_ids}


def _shown(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {kind}" for kind, amount in sorted(resources.items()))
