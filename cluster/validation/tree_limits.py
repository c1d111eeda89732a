"""The shape of a frozen tree, and the limits that it must fit."""

from __future__ import annotations

from typing import Literal

from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.trees import level_shapes
from outrider.cluster.validation.refusals import invalid
from outrider.cluster.validation.rules import rules
from outrider.v1 import sampling_pb2

_RULES = rules(sampling_pb2.SpeculationOptions.DESCRIPTOR)


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
