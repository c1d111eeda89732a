"""How to be fast: verifier, drafters, and how large their trees may be."""

from __future__ import annotations

from outrider.actors.exchange.verifier_wire import asked_for
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Speculation
from outrider.cluster.validation.drafters import settle_drafters
from outrider.cluster.validation.drafting_policies import settle_policies
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, shown
from outrider.cluster.validation.tree_limits import room_for, settle_shape
from outrider.v1 import sampling_pb2


def settle_speculation(
    options: sampling_pb2.SpeculationOptions, limits: Limits
) -> tuple[Speculation, tuple[str, ...]]:
    """The options in force, and the names of the drafters to use."""
    defaults = limits.speculation
    enabled = options.enabled if options.HasField("enabled") else defaults.enabled
    named = tuple(options.drafters)
    verifier = _verifier(options, limits)
    shape = settle_shape(options, verifier)
    max_nodes = options.max_nodes if options.HasField("max_nodes") else defaults.max_nodes
    max_depth = options.max_depth if options.HasField("max_depth") else defaults.max_depth
    if shape is not None:
        max_nodes = room_for(shape, "max_nodes", shape.num_nodes, max_nodes, options)
        max_depth = room_for(shape, "max_depth", shape.depth, max_depth, options)
    able = [one for one in limits.drafters if not one.mismatch and one.can_verify(verifier)]
    policies = settle_policies(
        options,
        defaults=defaults.policies,
        verifier=verifier,
        enabled=enabled,
        served={one.name: one.draft_lengths for one in able if not named or one.name in named},
    )
    drafters = settle_drafters(named, verifier, policies.draft_length, limits) if enabled else ()
    return (
        Speculation(
            enabled=enabled,
            verifier=verifier,
            verifier_options=_numbers(options, verifier),
            max_nodes=max_nodes,
            max_depth=max_depth,
            tree_shape=shape,
            policies=policies,
        ),
        drafters,
    )


def _verifier(options: sampling_pb2.SpeculationOptions, limits: Limits) -> str:
    offered = ", ".join(limits.verifiers)
    field = "speculation.verifier_name" if options.verifier_name else "speculation.verifier"
    try:
        verifier = asked_for(options) or limits.speculation.verifier
    except ValueError as error:
        raise invalid("speculation.verifier", f"{error}; offered: {offered}") from None
    if verifier not in limits.verifiers or verifier not in VERIFIERS:
        raise invalid(
            field, f"{shown(verifier)} is not offered by {limits.model!r}; offered: {offered}"
        )
    return verifier


def _numbers(options: sampling_pb2.SpeculationOptions, verifier: str) -> dict[str, float]:
    """The verifier's own options, all of them."""
    try:
        return VERIFIERS[verifier].settled(options.verifier_options)
    except ValueError as error:
        raise invalid("speculation.verifier_options", f"cannot be used: {error}") from None
