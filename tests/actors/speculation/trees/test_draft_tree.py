"""Frozen trees are checked when they are made."""

from __future__ import annotations

import pytest

from outrider.actors.speculation.trees.draft_tree import DraftTree, sources_by_parent


def test_children_keep_draw_order() -> None:
    """Also where levels are interleaved."""
    tree = DraftTree(tokens_N=(5, 5, 6, 7), parents_N=(-1, 0, -1, 0))
    assert tree.children() == {-1: [0, 2], 0: [1, 3]}


def test_paths_lead_from_the_text_down() -> None:
    """The text itself has none."""
    tree = DraftTree(tokens_N=(5, 6, 7, 8), parents_N=(-1, 0, -1, 1))
    assert [tree.path(node) for node in range(-1, 4)] == [[], [5], [5, 6], [7], [5, 6, 8]]


def test_rows_are_counted_from_zero() -> None:
    """The first one is a source like others."""
    tree = DraftTree(tokens_N=(5, 6), parents_N=(-1, 0), sources_N=(0, 1))
    assert tree.sources_N == (0, 1)


def test_chains() -> None:
    """Every node below the one before; nothing at all is a chain too."""
    assert DraftTree(tokens_N=(1, 2), parents_N=(-1, 0)).is_chain
    assert DraftTree(tokens_N=(), parents_N=()).is_chain
    assert not DraftTree(tokens_N=(1, 2), parents_N=(-1, -1)).is_chain


def test_sources_by_parent() -> None:
    """One row for each internal node, the root's first."""
    assert sources_by_parent((-1, -1, 0, 1, 1, 3)) == (0, 0, 1, 2, 2, 3)


@pytest.mark.parametrize(
    ("tokens", "parents", "sources", "message"),
    [
        ((1, 2), (-1,), (), "parents_N has 1 entries for 2 tokens"),
        ((1, 2), (-1, 1), (), "parent of node 1 is 1"),
        ((1,), (-2,), (), "parent of node 0 is -2"),
        ((1, 2), (-1, 0), (0,), "sources_N has 1 entries for 2 tokens"),
        ((1,), (-1,), (-1,), "source of node 0 is -1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tokens: tuple[int, ...], parents: tuple[int, ...], sources: tuple[int, ...], message: str
) -> None:
    """With the node and the value."""
    with pytest.raises(ValueError, match=message):
        DraftTree(tokens_N=tokens, parents_N=parents, sources_N=sources)
