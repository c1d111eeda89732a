"""Speculation options: each wrong value is refused with its code and field."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from tests.cluster.validation.cases import INVALID, settle

from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import sampling_pb2

SPECULATION: list[tuple[dict[str, Any], grpc.StatusCode, str]] = [
    ({"enabled": False, "drafters": ["a"]}, INVALID, "speculation.drafters"),
    ({"drafters": ["nobody"]}, grpc.StatusCode.NOT_FOUND, "speculation.drafters[0]"),
    ({"drafters": ["a", "a"]}, INVALID, "speculation.drafters[1]"),
    ({"drafters": ["alien"]}, grpc.StatusCode.FAILED_PRECONDITION, "speculation.drafters[0]"),
    (
        {"verifier": sampling_pb2.VERIFIER_EXACT_MATCH, "drafters": ["a"]},
        INVALID,
        "speculation.drafters[0]",
    ),
    ({"verifier": sampling_pb2.VERIFIER_TRAVERSAL}, INVALID, "speculation.verifier"),
    ({"verifier": 99}, INVALID, "speculation.verifier"),
    ({"max_nodes": 0}, INVALID, "speculation.max_nodes"),
    ({"max_nodes": 257}, INVALID, "speculation.max_nodes"),
    ({"max_depth": 0}, INVALID, "speculation.max_depth"),
    ({"max_depth": 65}, INVALID, "speculation.max_depth"),
    ({"tree_shape": "2,2"}, INVALID, "speculation.tree_shape"),
]


@pytest.mark.parametrize(("options", "code", "field"), SPECULATION)
def test_wrong_speculation_is_refused(
    options: dict[str, Any], code: grpc.StatusCode, field: str
) -> None:
    """Each rule of the contract holds."""
    with pytest.raises(Refusal) as refused:
        settle(speculation=options)
    assert (refused.value.code, refused.value.field) == (code, field)
