"""Which shape a frozen tree gets."""

from __future__ import annotations

import pytest

from outrider.actors.speculation.options import Speculation, VerifierName
from outrider.actors.speculation.trees.level_shapes import LevelShape
from outrider.actors.speculation.verify.registry import METHODS
from outrider.actors.speculation.verify.tree_shape import shape_of

FROZEN = [verifier for verifier, method in METHODS.items() if method.needs_draft_probs]


@pytest.mark.parametrize("verifier", FROZEN)
@pytest.mark.parametrize("max_nodes", [1, 2, 5, 16, 28, 256])
@pytest.mark.parametrize("max_depth", [-1, 0, 1, 2, 3, 8])
def test_default_shapes_fit(verifier: VerifierName, max_nodes: int, max_depth: int) -> None:
    """Within the limits, as deep as there is room, and a chain where only chains are verified."""
    speculation = Speculation(verifier=verifier, max_nodes=max_nodes)
    shape = shape_of(speculation, max_depth)
    assert shape.num_nodes <= max_nodes
    assert shape.depth <= max(max_depth, 0)
    assert (shape.depth > 0) == (max_depth > 0)
    if METHODS[verifier].is_chain_only:
        assert set(shape.branching) <= {1}


def test_defaults_by_budget() -> None:
    """The tree of the literature where it fits, a smaller one under the default budget."""
    assert shape_of(Speculation(verifier=VerifierName.TRAVERSAL, max_nodes=28), 9) == LevelShape(
        (4, 2, 2)
    )
    assert shape_of(Speculation(verifier=VerifierName.TRAVERSAL), 9) == LevelShape((2, 2, 2))
    assert shape_of(Speculation(verifier=VerifierName.BLOCK), 9) == LevelShape((1, 1, 1, 1))


def test_asked_shape_loses_whole_levels() -> None:
    """What does not fit is cut between levels, never inside one."""
    asked = Speculation(verifier=VerifierName.KSEQ, max_nodes=28, tree_shape=LevelShape((4, 2, 2)))
    assert shape_of(asked, 5) == LevelShape((4, 2, 2))
    assert shape_of(asked, 2) == LevelShape((4, 2))
    fewer = Speculation(verifier=VerifierName.KSEQ, max_nodes=27, tree_shape=LevelShape((4, 2, 2)))
    assert shape_of(fewer, 5) == LevelShape((4, 2))
