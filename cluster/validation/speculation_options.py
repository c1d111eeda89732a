"""How to be fast: verifier, drafters, and how large their trees may be."""

from __future__ import annotations

from typing import Literal

import grpc

from outrider.actors.exchange.verifier_wire import asked_for
from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.policies import LengthChoice
from outrider.actors.speculation.trees import level_shapes
from outrider.cluster.validation.drafting_policies import settle_policies
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, shown
from outrider.cluster.validation.rules import rules
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import sampling_pb2

_RULES = rules(sampling_pb2.SpeculationOptions.DESCRIPTOR)


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
    selector = options.selector if options.HasField("selector") else defaults.selector
    selector_options = _selector_options(options, selector)
    at_work = defaults.drafters_at_work
    if options.HasField("drafters_at_work"):
        at_work = options.drafters_at_work
    return (
        Speculation(
            enabled=enabled,
            verifier=verifier,
            verifier_options=_numbers(options, verifier),
            max_nodes=max_nodes,
            max_depth=max_depth,
            tree_shape=shape,
            policies=policies,
            selector=selector,
            selector_options=selector_options,
            drafters_at_work=at_work,
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


def _selector_options(options: sampling_pb2.SpeculationOptions, selector: str) -> dict[str, float]:
    """The selector's own options, all of them."""
    if selector not in SELECTORS:
        raise invalid(
            "speculation.selector", f"is {shown(selector)}; choose among {', '.join(SELECTORS)}"
        )
    try:
        return SELECTORS[selector].settled(options.selector_options)
    except ValueError as error:
        raise invalid("speculation.selector_options", f"cannot be used: {error}") from None


def settle_shape(
    options: sampling_pb2.SpeculationOptions, verifier: str
) -> level_shapes.LevelShape | None:
    """The shape that is asked for, or None: the verifier's own."""
    field = "speculation.tree_shape"
    if not options.HasField("tree_shape"):
        return None
    method = VERIFIERS[verifier]
    if not method.needs_frozen_tree:
        frozen = ", ".join(name for name, one in VERIFIERS.items() if one.needs_frozen_tree)
        raise invalid(
            field,
            f"does not go with {verifier!r}, whose trees grow as they please; leave it out, or set "
            f"speculation.verifier to one of {frozen}",
        )
    try:
        shape = level_shapes.parse(options.tree_shape)
    except ValueError as error:
        raise invalid(field, f"cannot be used: {error}") from None
    if method.is_chain_only and any(count != 1 for count in shape.branching):
        raise invalid(
            field,
            f"is {str(shape)!r}, a tree, and {verifier!r} verifies chains; write 1,1,1,1 for a chain of four",
        )
    for name, value, most in (
        ("candidates", shape.num_nodes, int(_RULES["max_nodes"].most)),
        ("levels", shape.depth, int(_RULES["max_depth"].most)),
    ):
        if value > most:
            raise invalid(field, f"has {value} {name}; at most {most} are possible")
    return shape


def room_for(
    shape: level_shapes.LevelShape,
    name: Literal["max_nodes", "max_depth"],
    needed: int,
    given: int,
    options: sampling_pb2.SpeculationOptions,
) -> int:
    """The limit that lets a shape through: a default gives way, what the client wrote does not."""
    if needed > given and options.HasField(name):
        raise invalid(
            "speculation.tree_shape",
            f"is {str(shape)!r}, which needs {needed}, and speculation.{name} is {given}; change one of them",
        )
    return max(needed, given)


def settle_drafters(
    named: tuple[str, ...], verifier: str, length: LengthChoice, limits: Limits
) -> tuple[str, ...]:
    """The drafters named, or all that can serve the request."""
    known = {drafter.name: drafter for drafter in limits.drafters}
    if not named:
        return tuple(
            drafter.name
            for drafter in limits.drafters
            if not drafter.mismatch
            and drafter.can_verify(verifier)
            and (not drafter.draft_lengths or length in drafter.draft_lengths)
        )
    for index, name in enumerate(named):
        field = f"speculation.drafters[{index}]"
        drafter = known.get(name)
        if drafter is None:
            listed = ", ".join(map(repr, known)) or "none"
            raise Refusal(
                grpc.StatusCode.NOT_FOUND,
                f"{field} {shown(name)} is not a drafter here; known drafters: {listed}",
                field=field,
            )
        if name in named[:index]:
            raise invalid(field, f"names {name!r} a second time")
        if drafter.mismatch:
            raise Refusal(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{field} {name!r} cannot serve {limits.model!r}: {drafter.mismatch}, or name another drafter or none",
                field=field,
            )
        if not drafter.can_verify(verifier):
            can = ", ".join(drafter.verifiers)
            why = (
                ": it proposes tokens without a law that they are drawn from, which this verifier tests"
                if VERIFIERS[verifier].needs_frozen_tree
                else ""
            )
            raise invalid(
                field, f"{name!r} cannot serve the verifier {verifier!r}{why}; it serves {can}"
            )
        if drafter.draft_lengths and length not in drafter.draft_lengths:
            can = ", ".join(one.value for one in drafter.draft_lengths)
            raise invalid(
                field, f"{name!r} cannot serve the draft length {length.value!r}, only {can}"
            )
    return named
