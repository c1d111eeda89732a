"""Drafting policies to `outrider.v1` and back. Pure."""

from __future__ import annotations

from typing import TypeVar

from outrider.actors.speculation.policies import DraftPolicies, LengthChoice, MaskPolicy, RootPolicy
from outrider.v1 import sampling_pb2

One = TypeVar("One")

_LENGTHS: dict[LengthChoice, sampling_pb2.DraftLength.ValueType] = {
    one: sampling_pb2.DraftLength.Value(f"DRAFT_LENGTH_{one.name}") for one in LengthChoice
}
_ROOTS: dict[RootPolicy, sampling_pb2.Roots.ValueType] = {
    one: sampling_pb2.Roots.Value(f"ROOTS_{one.name}") for one in RootPolicy
}
_MASKS: dict[MaskPolicy, sampling_pb2.TreeMask.ValueType] = {
    one: sampling_pb2.TreeMask.Value(f"TREE_MASK_{one.name}") for one in MaskPolicy
}
_FROM_LENGTH: dict[int, LengthChoice] = {value: one for one, value in _LENGTHS.items()}
_FROM_ROOTS: dict[int, RootPolicy] = {value: one for one, value in _ROOTS.items()}
_FROM_MASK: dict[int, MaskPolicy] = {value: one for one, value in _MASKS.items()}


def draft_length_to_proto(length: LengthChoice) -> sampling_pb2.DraftLength.ValueType:
    """The wire's value."""
    return _LENGTHS[length]


def draft_length_from_proto(value: int) -> LengthChoice:
    """The policy of a wire value.

    Raises:
        ValueError: The value is not known to this version.
    """
    return _known(_FROM_LENGTH, value, "draft_length")


def roots_to_proto(roots: RootPolicy) -> sampling_pb2.Roots.ValueType:
    """The wire's value."""
    return _ROOTS[roots]


def roots_from_proto(value: int) -> RootPolicy:
    """The policy of a wire value; raises as `draft_length_from_proto`."""
    return _known(_FROM_ROOTS, value, "roots")


def tree_mask_to_proto(mask: MaskPolicy) -> sampling_pb2.TreeMask.ValueType:
    """The wire's value."""
    return _MASKS[mask]


def tree_mask_from_proto(value: int) -> MaskPolicy:
    """The policy of a wire value; raises as `draft_length_from_proto`."""
    return _known(_FROM_MASK, value, "tree_mask")


def policies_to_proto(policies: DraftPolicies, options: sampling_pb2.SpeculationOptions) -> None:
    """Sets every policy field of the options."""
    options.draft_length = _LENGTHS[policies.draft_length]
    options.roots = _ROOTS[policies.roots]
    options.tree_mask = _MASKS[policies.tree_mask]
    options.aggressiveness = policies.aggressiveness
    options.decision_threshold = policies.decision_threshold


def policies_from_proto(options: sampling_pb2.SpeculationOptions) -> DraftPolicies:
    """The policies of a session; absent and unspecified fields take their defaults.

    Raises:
        ValueError: A policy is not known to this version.
    """
    plain = DraftPolicies()
    return DraftPolicies(
        draft_length=draft_length_from_proto(options.draft_length)
        if options.draft_length
        else plain.draft_length,
        roots=roots_from_proto(options.roots) if options.roots else plain.roots,
        tree_mask=tree_mask_from_proto(options.tree_mask) if options.tree_mask else plain.tree_mask,
        aggressiveness=options.aggressiveness
        if options.HasField("aggressiveness")
        else plain.aggressiveness,
        decision_threshold=options.decision_threshold
        if options.HasField("decision_threshold")
        else plain.decision_threshold,
    )


def _known(known: dict[int, One], value: int, name: str) -> One:
    if value not in known:
        raise ValueError(f"speculation.{name} is {value}, which this version does not know")
    return known[value]
