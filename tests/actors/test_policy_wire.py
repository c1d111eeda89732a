"""Drafting policies on the wire."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import pytest

from outrider.actors.exchange import policy_wire
from outrider.actors.speculation.policies import DraftPolicies, LengthChoice, MaskPolicy, RootPolicy
from outrider.v1 import sampling_pb2

KINDS: list[tuple[type[StrEnum], int, Callable[..., int], Callable[[int], StrEnum], str]] = [
    (
        LengthChoice,
        len(sampling_pb2.DraftLength.values()),
        policy_wire.draft_length_to_proto,
        policy_wire.draft_length_from_proto,
        "speculation.draft_length",
    ),
    (
        RootPolicy,
        len(sampling_pb2.Roots.values()),
        policy_wire.roots_to_proto,
        policy_wire.roots_from_proto,
        "speculation.roots",
    ),
    (
        MaskPolicy,
        len(sampling_pb2.TreeMask.values()),
        policy_wire.tree_mask_to_proto,
        policy_wire.tree_mask_from_proto,
        "speculation.tree_mask",
    ),
]


@pytest.mark.parametrize(("kind", "count", "to_proto", "from_proto", "field"), KINDS)
def test_every_policy_has_a_number(
    kind: type[StrEnum],
    count: int,
    to_proto: Callable[..., int],
    from_proto: Callable[[int], StrEnum],
    field: str,
) -> None:
    """Names and numbers correspond; a number of a later version is refused by the field's name."""
    assert [from_proto(to_proto(one)) for one in kind] == list(kind)
    assert count == len(kind) + 1
    with pytest.raises(ValueError, match=f"{field} is 99"):
        from_proto(99)


def test_policies_round_trip() -> None:
    """Every choice and parameter arrives; what is absent takes the default."""
    chosen = DraftPolicies(
        draft_length=LengthChoice.DECISION,
        roots=RootPolicy.TARGET,
        tree_mask=MaskPolicy.BUILT,
        aggressiveness=2.5,
        decision_threshold=0.7,
    )
    options = sampling_pb2.SpeculationOptions()
    policy_wire.policies_to_proto(chosen, options)
    assert policy_wire.policies_from_proto(options) == chosen
    absent = sampling_pb2.SpeculationOptions()
    assert policy_wire.policies_from_proto(absent) == DraftPolicies()
