"""Which shape a frozen tree gets."""

from __future__ import annotations

import pytest

from outrider.actors.speculation.choice.tree_shape import shape_of
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees.level_shapes import LevelShape

FROZEN = [
    verifier
    for verifier, method in VERIFIERS.items()
    if method.needs_frozen_tree and method.is_lossless
]


@pytest.mark.parametrize("verifier", FROZEN)
@pytest.mark.parametrize("max_nodes", [1, 2, 5, 16, 28, 256])
@pytest.mark.parametrize("max_depth", [-1, 0, 1, 2, 3, 8])
def test_default_shapes_fit(verifier: str, max_nodes: int, max_depth: int) -> None:
    """Within the limits, as deep as there is room, and a chain where only chains are verified."""
    speculation = Speculation(verifier=verifier, max_nodes=max_nodes)
    shape = shape_of(speculation, max_depth)
    assert shape.num_nodes <= max_nodes
    assert shape.depth <= max(max_depth, 0)
    assert (shape.depth > 0) == (max_depth > 0)
    if VERIFIERS[verifier].is_chain_only:
        assert set(shape.branching) <= {1}


def test_defaults_by_budget() -> None:
    """A small tree under the default budget, fewer children and then fewer levels under less."""
    assert shape_of(Speculation(verifier="traversal"), 9) == LevelShape((2, 2, 2))
    assert shape_of(Speculation(verifier="traversal", max_nodes=13), 9) == LevelShape((2, 2, 1))
    assert shape_of(Speculation(verifier="traversal", max_nodes=9), 9) == LevelShape((2, 2))
    assert shape_of(Speculation(verifier="block"), 9) == LevelShape((1, 1, 1, 1))


def test_asked_shape_loses_whole_levels() -> None:
    """What does not fit is cut between levels, never inside one."""
    asked = Speculation(verifier="kseq", max_nodes=28, tree_shape=LevelShape((4, 2, 2)))
    assert shape_of(asked, 5) == LevelShape((4, 2, 2))
    assert shape_of(asked, 2) == LevelShape((4, 2))
    fewer = Speculation(verifier="kseq", max_nodes=27, tree_shape=LevelShape((4, 2, 2)))
    assert shape_of(fewer, 5) == LevelShape((4, 2))
