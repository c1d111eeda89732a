"""Drafting policies on the wire: choices by the numbers of the contract's lists."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from outrider.actors.exchange.option_fields import choice, chosen, listed, numbers
from outrider.actors.exchange.request_options_wire import (
    speculation_from_proto,
    speculation_to_proto,
)
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.policies import DraftPolicies, LengthChoice, RootPolicy
from outrider.v1 import generation_pb2, sampling_pb2

KINDS: list[tuple[type[StrEnum], str]] = [
    (LengthChoice, "draft_length"),
    (RootPolicy, "roots"),
]


@pytest.mark.parametrize(("kind", "field"), KINDS)
def test_every_policy_has_a_number(kind: type[StrEnum], field: str) -> None:
    """Names and numbers correspond; a number of a later version is refused by the field's name."""
    options = sampling_pb2.SpeculationOptions()
    assert set(listed(options, field)) == set(kind)
    for name, number in listed(options, field).items():
        setattr(options, field, number)
        assert choice(options, field, kind) == name
    setattr(options, field, 99)
    with pytest.raises(ValueError, match=f"{field} is 99"):
        choice(options, field, kind)
    with pytest.raises(ValueError, match=f"speculation.{field} is 99"):
        speculation_from_proto(options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"verifier": 99}, r"speculation\.verifier is 99, which this version does not know"),
        ({"verifier": 1, "verifier_name": "kseq"}, r"speculation\.verifier is 'coupled'"),
        ({"tree_shape": "a"}, r"speculation\.tree_shape: tree shape is 'a'"),
    ],
)
def test_what_cannot_be_read_is_named(options: dict[str, Any], says: str) -> None:
    """By the field, whichever it is."""
    with pytest.raises(ValueError, match=says):
        speculation_from_proto(sampling_pb2.SpeculationOptions(**options))


def test_choices_of_later_versions_are_passed_over() -> None:
    """What is offered is what is known."""
    model = generation_pb2.TargetModel(
        draft_lengths=[*numbers(generation_pb2.TargetModel, "draft_lengths", LengthChoice), 99]  # type: ignore[list-item]
    )

    assert chosen(model, "draft_lengths", LengthChoice) == tuple(LengthChoice)


def test_policies_round_trip() -> None:
    """Every choice and parameter arrives; what is absent takes the default."""
    policies = DraftPolicies(
        draft_length=LengthChoice.DECISION,
        roots=RootPolicy.TARGET,
        aggressiveness=2.5,
        decision_threshold=0.7,
    )
    speculation = Speculation(policies=policies)
    assert speculation_from_proto(speculation_to_proto(speculation)) == speculation
    assert speculation_from_proto(sampling_pb2.SpeculationOptions()) == Speculation()
