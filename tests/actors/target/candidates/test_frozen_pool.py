"""Frozen trees that wait for their text."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.frozen.frozen_candidates import FrozenCandidates
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import freeze
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement, sources_by_parent
from outrider.actors.speculation.trees.level_shapes import LevelShape
from outrider.actors.target.candidates.frozen_pool import (
    MAX_HELD,
    TRY_AGAIN,
    FrozenPool,
    first_levels,
    side_by_side,
)


def tree(
    branching: tuple[int, ...] = (2, 2),
    *,
    first: int = 0,
    replacement: Replacement = Replacement.WITH,
) -> FrozenTree:
    """A tree whose tokens count up from `first`, each internal node with a law of its own."""
    parents_N = LevelShape(branching).parents_N
    sources_N = sources_by_parent(parents_N)
    rows = tuple(
        freeze(np.roll(np.arange(1.0, 41.0), row)) for row in range(max(sources_N, default=-1) + 1)
    )
    draft = DraftTree(
        tokens_N=tuple(range(first, first + len(parents_N))),
        parents_N=parents_N,
        sources_N=sources_N,
        replacement=replacement,
    )
    return FrozenTree(tree=draft, rows=rows)


def take(
    held: FrozenPool, frozen: FrozenTree, *, drafter: int = 0, length: int = 5, number: int = 1
) -> bool:
    """Hands in a tree; the hash of a base is a hundred times its length."""
    found = FrozenCandidates(
        handle=1, base_length=length, base_hash=100 * length, round=number, frozen=frozen
    )
    return held.take(drafter, found)


def test_a_tree_waits_for_its_text() -> None:
    """It is there for its base only, and gone once the text is longer."""
    held = FrozenPool("kseq")
    assert take(held, tree(), length=8)
    assert not held.has(5, 500)
    assert held.advance(8) == 0
    assert not held.has(8, 801)
    assert held.has(8, 800)
    assert held.advance(9) == 6
    assert held.num_trees == 0


def test_the_first_tree_of_a_drafter_for_a_base_counts() -> None:
    """Repeated and second trees are dropped, and none is left once the base is decided."""
    held = FrozenPool("kseq")
    assert take(held, tree())
    assert not take(held, tree(first=3), number=2)
    ready = held.ready(5, 500, max_nodes=9, max_depth=9)
    assert ready is not None
    assert ready.frozen.tree.tokens_N[0] == 0
    for _ in range(2):
        held.spend(5, 500)
    assert held.ready(5, 500, max_nodes=9, max_depth=9) is None


def test_only_the_first_drafter_counts_unless_the_verifier_mixes() -> None:
    """K-seq takes what came first; SpecInfer takes both, each node with the law that it was drawn from."""
    for verifier, num_nodes in (("kseq", 6), ("specinfer", 12)):
        held = FrozenPool(verifier)
        assert take(held, tree(), drafter=1)
        assert take(held, tree(first=20), drafter=0)
        ready = held.ready(5, 500, max_nodes=20, max_depth=9)
        assert ready is not None
        assert ready.frozen.tree.num_nodes == num_nodes
        assert ready.drafters_N == (1,) * 6 + (0,) * (num_nodes - 6)


def test_trees_side_by_side_share_the_room() -> None:
    """The second has what the first left, by whole levels; a tree without room for its first level is left out."""
    held = FrozenPool("specinfer")
    for drafter in (0, 1):
        take(held, tree((2, 2), first=20 * drafter), drafter=drafter)
    for max_nodes, expected in ((12, (0,) * 6 + (1,) * 6), (8, (0,) * 6 + (1,) * 2), (6, (0,) * 6)):
        ready = held.ready(5, 500, max_nodes=max_nodes, max_depth=9)
        assert ready is not None
        assert ready.drafters_N == expected
    assert held.ready(5, 500, max_nodes=1, max_depth=9) is None
    assert held.ready(5, 500, max_nodes=12, max_depth=0) is None


def test_nodes_are_those_of_the_text() -> None:
    """Depths count from the start of the text, parents within the tree."""
    held = FrozenPool("kseq")
    take(held, tree((2, 1)), drafter=3)
    ready = held.ready(5, 500, max_nodes=9, max_depth=9)
    assert ready is not None
    assert list(ready.nodes()) == [(0, -1, 6, 3), (1, -1, 6, 3), (2, 0, 7, 3), (3, 1, 7, 3)]


def test_trees_that_a_text_passes_by_are_named() -> None:
    """Those for shorter texts; one for this very text may still be verified."""
    held = FrozenPool("kseq")
    for length in (5, 6, 500):
        take(held, tree(first=length), drafter=length, length=length)
    passed = {base: (who, one.tree.tokens_N[0]) for base, who, one in held.passed(6)}
    assert passed == {(5, 500): (5, 5)}
    assert len(list(held.passed(501))) == 3


def test_all_that_drafters_send_for_a_text_is_there() -> None:
    """One tree is all that K-seq takes; SpecInfer takes one of each drafter."""
    everyone = frozenset({0, 1})
    assert FrozenPool("kseq").is_complete(5, 500, everyone)
    held = FrozenPool("specinfer")
    assert not held.is_complete(5, 500, everyone)
    take(held, tree(), drafter=0)
    assert not held.is_complete(5, 500, everyone)
    assert held.is_complete(5, 500, frozenset({0}))
    take(held, tree(), drafter=1)
    assert held.is_complete(5, 500, everyone)
    assert not held.is_complete(5, 501, everyone)


def test_the_size_to_expect_is_that_of_earlier_trees() -> None:
    """The tree at hand does not count: whether it is worth its rows must not depend on its tokens."""
    held = FrozenPool("mcsd_without_replacement")
    without = Replacement.WITHOUT

    def expected(length: int, shape: tuple[int, ...]) -> int:
        take(held, tree(shape, replacement=without), length=length)
        ready = held.ready(length, 100 * length, max_nodes=99, max_depth=9)
        assert ready is not None
        held.spend(length, 100 * length)
        return ready.expected_nodes

    assert expected(5, (2, 2)) == 0
    sizes = [expected(length, (2,)) for length in range(6, 60)]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (6, 2)
    assert set(sizes) == {6, 5, 4, 3, 2}


def test_both_trees_of_two_drafters_are_expected() -> None:
    """Where they are verified side by side."""
    held = FrozenPool("specinfer")
    expected: list[int] = []
    for length in (5, 6):
        for drafter in (0, 1):
            take(held, tree((2, 1)), length=length, drafter=drafter)
        ready = held.ready(length, 100 * length, max_nodes=99, max_depth=9)
        assert ready is not None
        expected.append(ready.expected_nodes)
        held.advance(length + 1)
    assert expected[-1] == 8


def test_a_drafter_cannot_fill_the_memory() -> None:
    """Of too many trees the oldest go."""
    held = FrozenPool("kseq")
    for number in range(20):
        take(held, tree(), length=50 - number, number=number)
    assert held.num_trees == MAX_HELD
    assert held.has(31, 3100)
    assert not held.has(50, 5000)


@pytest.mark.parametrize(
    ("verifier", "frozen", "problem"),
    [
        ("block", tree((2,)), "verifies chains"),
        ("kseq", tree(replacement=Replacement.WITHOUT), "drawn with replacement"),
        ("mcsd_without_replacement", tree((1, 1)), "drawn without replacement"),
    ],
)
def test_trees_of_another_verifier_are_refused(
    verifier: str, frozen: FrozenTree, problem: str
) -> None:
    """The message says what the session's verifier needs."""
    held = FrozenPool(verifier)
    with pytest.raises(ValueError, match=problem):
        take(held, frozen)
    assert held.num_trees == 0


@pytest.mark.parametrize(
    ("max_nodes", "max_depth", "kept"),
    [(14, 9, 14), (13, 9, 6), (6, 9, 6), (5, 9, 2), (1, 9, 0), (14, 2, 6), (14, 0, 0)],
)
@pytest.mark.parametrize("replacement", Replacement)
def test_trees_lose_whole_levels(
    max_nodes: int, max_depth: int, kept: int, replacement: Replacement
) -> None:
    """What does not fit is cut between levels, whatever the tokens are."""
    whole = tree((2, 2, 2), replacement=replacement)
    cut = first_levels(whole, max_nodes=max_nodes, max_depth=max_depth)
    assert cut.tree.num_nodes == kept
    assert cut.tree.tokens_N == whole.tree.tokens_N[:kept]
    assert cut.tree.parents_N == whole.tree.parents_N[:kept]
    assert cut.tree.sources_N == whole.tree.sources_N[:kept]
    assert cut.tree.replacement is replacement


@pytest.mark.parametrize("replacement", Replacement)
def test_trees_side_by_side_keep_their_laws(replacement: Replacement) -> None:
    """Nodes of later trees hang below each other and point at their own rows."""
    shapes = ((2, 1), (1, 1), (1,))
    parts = [
        tree(shape, first=9 * place, replacement=replacement) for place, shape in enumerate(shapes)
    ]
    both = side_by_side(parts)
    assert both.tree.parents_N == (-1, -1, 0, 1, -1, 4, -1)
    assert both.tree.tokens_N == (0, 1, 2, 3, 9, 10, 18)
    assert both.tree.replacement is replacement
    places = [(part, place) for part in parts for place in range(part.tree.num_nodes)]
    for source, (part, place) in zip(both.tree.sources_N, places, strict=True):
        assert both.rows[source] is part.rows[part.tree.sources_N[place]]


def test_a_tree_that_does_not_pay_is_tried_now_and_then() -> None:
    """Acceptance may have risen since it was last measured."""
    held = FrozenPool("kseq")
    assert held.is_worth(is_gain=True)
    expected = ([False] * TRY_AGAIN + [True]) * 2
    assert [held.is_worth(is_gain=False) for _ in expected] == expected
    held = FrozenPool("kseq")
    assert [held.is_worth(is_gain=False) for _ in expected] == expected
