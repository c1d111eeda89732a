"""Shapes of trees: what cannot be, and what the limits do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.validation.cases import INVALID, LIMITS, settle

from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import sampling_pb2

TREES = replace(LIMITS, verifiers=tuple(VERIFIERS))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tree_shape": "2,x"}, "write the children of each level"),
        ({"tree_shape": ""}, "write the children of each level"),
        ({"tree_shape": "2,0"}, "at least 1 child"),
        ({"tree_shape": "16,16"}, "has 272 candidates; at most 256"),
        ({"tree_shape": ",".join("1" * 65)}, "at most 128 characters"),
        ({"tree_shape": "2,2", "max_nodes": 5}, "needs 6, and speculation.max_nodes is 5"),
        ({"tree_shape": "1,1", "max_depth": 1}, "needs 2, and speculation.max_depth is 1"),
        ({"tree_shape": "2,2", "verifier": sampling_pb2.VERIFIER_BLOCK}, "'block' verifies chains"),
        (
            {"tree_shape": "2", "verifier": sampling_pb2.VERIFIER_COUPLED},
            "set speculation.verifier",
        ),
    ],
)
def test_wrong_tree_shape_is_refused(options: dict[str, Any], problem: str) -> None:
    """The message says what is wrong with the shape and what would do."""
    options = {"verifier": sampling_pb2.VERIFIER_TRAVERSAL, **options}
    with pytest.raises(Refusal, match=problem) as refused:
        settle(TREES, speculation=options)
    assert (refused.value.code, refused.value.field) == (INVALID, "speculation.tree_shape")


def test_tree_shape_widens_the_defaults() -> None:
    """A shape that is larger than the default limits raises them."""
    options = {"verifier": sampling_pb2.VERIFIER_KSEQ, "tree_shape": "4,2,4"}
    speculation = settle(TREES, speculation=options).speculation
    assert (str(speculation.tree_shape), speculation.max_nodes) == ("4,2,4", 44)
    deep = {**options, "tree_shape": ",".join("1" * 17)}
    assert settle(TREES, speculation=deep).speculation.max_depth == 17
