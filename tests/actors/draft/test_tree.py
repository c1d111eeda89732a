"""The candidate tree at the drafter."""

from __future__ import annotations

import random

import pytest

from outrider.actors.draft.tree import NOT_RUN, ROOT, DraftTree, TreeNews

FEATURE = (1, 1, 0)


def small_tree() -> DraftTree:
    """10 -> (20 -> 40, 30) and 11, with values .5, .25, .125, .1 and .2."""
    tree = DraftTree()
    tree.is_expanded = True
    ten = tree.add(ROOT, 10, 0.5, FEATURE)
    tree.add(ROOT, 11, 0.2, FEATURE)
    twenty = tree.add(ten, 20, 0.5, FEATURE)
    tree.add(ten, 30, 0.2, FEATURE)
    tree.add(twenty, 40, 0.5, FEATURE)
    return tree


def paths_of(news: TreeNews) -> set[tuple[int, ...]]:
    """Every path of token ids in a message."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(news.tokens, news.parents, strict=True):
        paths.append((*(paths[parent - 1] if parent else ()), token))
    return set(paths)


def test_values_are_products_of_estimates() -> None:
    """A node is worth the probability that all of its path is drawn."""
    tree = small_tree()
    assert tree.values == pytest.approx([0.5, 0.2, 0.25, 0.1, 0.125])
    assert tree.depths == [1, 1, 2, 2, 3]


def test_a_walk_goes_as_far_as_the_tree() -> None:
    """Walking stops at the first token that is no child."""
    tree = small_tree()
    assert tree.walk([10, 20, 99, 40]) == [0, 2]
    assert tree.walk([99]) == []
    assert tree.walk([10, 20, 40, 1]) == [0, 2, 4]


def test_rerooting_keeps_what_is_below() -> None:
    """The subtree stays, with its marks; rows are renumbered in their order; values are relative to the new root."""
    tree = small_tree()
    tree.scratch[0], tree.scratch[1], tree.scratch[2], tree.scratch[4] = 0, 1, 2, 3
    tree.take_news(3)
    assert tree.reroot(0) == [2, 3]
    assert tree.tokens == [20, 30, 40]
    assert tree.parents == [ROOT, ROOT, 0]
    assert tree.depths == [1, 1, 2]
    assert tree.values == pytest.approx([0.5, 0.2, 0.25])
    assert tree.scratch == [0, NOT_RUN, 1]
    assert tree.sent == [True, False, False]
    assert tree.num_sent == 1
    assert tree.is_expanded


def test_rerooting_at_a_node_that_was_not_run_leaves_nothing() -> None:
    """Its children are not known: the root has to be run."""
    tree = small_tree()
    tree.scratch[0] = 0
    assert tree.reroot(3) == []
    assert len(tree) == 0
    assert not tree.is_expanded


def test_news_are_self_contained_and_sent_once() -> None:
    """A message carries new nodes with their ancestors; the next one only what grew since, with ancestors again."""
    tree = small_tree()
    first = tree.take_news(64)
    assert first is not None
    assert first.tokens == [10, 11, 20, 30, 40]
    assert first.parents == [0, 0, 1, 1, 3]
    assert list(first.estimates) == [128, 51, 128, 51, 128]
    assert tree.take_news(64) is None
    tree.add(4, 50, 1.0, FEATURE)
    second = tree.take_news(64)
    assert second is not None
    assert second.tokens == [10, 20, 40, 50]
    assert second.parents == [0, 1, 2, 3]


def test_news_respect_the_limit_best_first() -> None:
    """With room for three nodes, the three most valuable are sent, and the rest when there is room."""
    tree = small_tree()
    news = tree.take_news(3)
    assert news is not None
    assert paths_of(news) == {(10,), (11,), (10, 20)}
    assert tree.take_news(3) is None
    rest = tree.take_news(5)
    assert rest is not None
    assert (10, 20, 40) in paths_of(rest)
    assert tree.num_sent == 5


def test_nodes_of_little_value_are_kept_back() -> None:
    """They are sent when re-rooting has made them worth it."""
    tree = small_tree()
    tree.scratch[0] = 0
    news = tree.take_news(64, 0.15)
    assert news is not None
    assert paths_of(news) == {(10,), (11,), (10, 20)}
    assert tree.take_news(64, 0.15) is None
    tree.reroot(0)
    news = tree.take_news(64, 0.15)
    assert news is not None
    assert paths_of(news) == {(20,), (20, 40), (30,)}


def test_no_node_is_sent_before_its_parent() -> None:
    """Whatever the limits, equal values included, what was sent is closed under parents."""
    generator = random.Random(5)
    for _ in range(50):
        tree = DraftTree()
        for token in range(30):
            parent = generator.randint(-1, token - 1)
            tree.add(parent, token, generator.choice([1.0, 0.9, 0.3]), FEATURE)
        for limit in sorted(generator.sample(range(31), 6)):
            tree.take_news(limit)
            assert tree.num_sent == sum(tree.sent) <= limit
            for node, parent in enumerate(tree.parents):
                assert parent == ROOT or not tree.sent[node] or tree.sent[parent]


def test_nodes_of_later_messages_stay_sent() -> None:
    """Their ancestors went along with them, so these are on their way too."""
    tree = small_tree()
    for number in range(1, 6):
        assert tree.take_news(number, number=number) is not None
    # 10, 20, 11, 40 and 30 in this order; 30 took 10 along, as 40 did before with 20.
    assert tree.sent == [5, 3, 4, 5, 4]
    tree.unsend(3)
    assert tree.sent == [5, 0, 4, 5, 4]
    assert tree.num_sent == 4
    news = tree.take_news(64, number=6)
    assert news is not None
    assert paths_of(news) == {(11,)}


def test_unsent_nodes_are_sent_again() -> None:
    """When the target lost them, the whole tree goes out once more."""
    tree = small_tree()
    first = tree.take_news(64)
    tree.unsend()
    assert tree.take_news(64) == first
