"""What actors need and what a Ray cluster has: bundles, shortages, and what to say of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.cluster.fleet import ActorSpec


class PlacementError(RuntimeError):
    """The cluster has no room for an actor; says which resource is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """A living node of the Ray cluster."""

    node_id: str
    """Its id."""

    host: str
    """Its address."""

    resources: Mapping[str, float]
    """All that it has, taken or free."""


def bundle_indices(specs: Sequence[ActorSpec]) -> dict[str, int]:
    """Which bundle of the placement group belongs to which actor; actors without needs have none."""
    needy = [spec.name for spec in specs if spec.resources]
    return {name: index for index, name in enumerate(needy)}


def shortage(specs: Sequence[ActorSpec], nodes: Sequence[NodeRoom]) -> str | None:
    """Why these actors cannot all be placed on these nodes, counting everything as free; None if nothing stands against it.

    Finds what is certainly missing, not every misfit: Ray decides whether the actors fit together.
    """
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
    return None


def _lacking(spec: ActorSpec, nodes: Sequence[NodeRoom]) -> str | None:
    """Why no single node can hold an actor."""
    if any(_fits(spec, node) for node in nodes):
        return None
    needs = _shown(spec.resources)
    for kind, amount in sorted(spec.resources.items()):
        most = max((node.resources.get(kind, 0.0) for node in nodes), default=0.0)
        if most < amount:
            has = f"the most that a node has is {most:g}" if most else "no node has any"
            return f"{spec.name!r} needs {amount:g} {kind}, and {has} (it asks for {needs})"
    return f"no single node has all that {spec.name!r} asks for: {needs}"


def _fits(spec: ActorSpec, node: NodeRoom) -> bool:
    return all(node.resources.get(kind, 0.0) >= amount for kind, amount in spec.resources.items())


def _shown(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {kind}" for kind, amount in sorted(resources.items()))
