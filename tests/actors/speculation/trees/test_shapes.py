"""Level-order layouts of static trees."""

from __future__ import annotations

import pytest

from outrider.actors.speculation.trees.level_shapes import LevelShape, chain, parse


@pytest.mark.parametrize(
    ("text", "levels", "nodes", "rows"),
    [
        ("4,2,2", (4, 8, 16), 28, 13),
        ("4,2,2,1", (4, 8, 16, 16), 44, 29),
        ("4,2,2,1,1", (4, 8, 16, 16, 16), 60, 45),
    ],
)
def test_sizes(text: str, levels: tuple[int, ...], nodes: int, rows: int) -> None:
    """Yang et al.'s configurations."""
    shape = parse(text)
    assert (levels, nodes, rows) == (shape.level_sizes, shape.num_nodes, shape.num_internal)
    assert str(shape) == text


def test_the_largest_shape() -> None:
    """4096 nodes are possible."""
    assert parse("4096").num_nodes == 4096


def test_layout() -> None:
    """Children of the i-th node of a level start at the level's base plus i times their number."""
    shape = parse("3,2,2")
    bases = (0, 3, 9)
    for depth in (1, 2):
        count = shape.branching[depth]
        for i in range(shape.level_sizes[depth - 1]):
            for c in range(count):
                node = bases[depth] + i * count + c
                assert shape.parents_N[node] == bases[depth - 1] + i


def visible(shape: LevelShape) -> list[set[int]]:
    """Which nodes each node sees: its ancestors and itself."""
    seen: list[set[int]] = []
    for node, parent in enumerate(shape.parents_N):
        seen.append({node} | (seen[parent] if parent >= 0 else set()))
    return seen


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_first_levels_are_a_leading_block(levels: int) -> None:
    """Parents and mask of the shorter tree are a slice of those of the longer one."""
    shape = parse("4,2,2")
    short = shape.prefix(levels)
    assert short.parents_N == shape.parents_N[: short.num_nodes]
    assert visible(short) == visible(shape)[: short.num_nodes]


def test_chains() -> None:
    """One path."""
    assert chain(3).parents_N == (-1, 0, 1)
    assert chain(0).num_nodes == chain(0).num_internal == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write the children"),
        ("4;2", "write the children"),
        ("4,0", "at least 1"),
        ("-1", "at least 1"),
        ("64,64,64", "at most 4096"),
        ("4097", "at most 4096"),
    ],
)
def test_bad_configurations_are_refused(text: str, message: str) -> None:
    """With what was written."""
    with pytest.raises(ValueError, match=message):
        parse(text)
