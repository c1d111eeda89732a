"""The walk over the target's draws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.speculation.verify.coupled_draws import walk

PARENTS = (-1, -1, 0, 0, 2)
TOKENS = (7, 8, 1, 2, 9)


def test_walk_follows_the_draws_and_ends_with_one_that_no_node_holds() -> None:
    """A path is accepted as long as each draw is a child; the last draw is committed too."""
    draws = {-1: 7, 0: 1, 2: 5}
    result = walk(TOKENS, PARENTS, draws.__getitem__, limit=10)
    assert (result.path, result.tokens) == ((0, 2), (7, 1, 5))


def test_walk_gives_the_bonus_token_after_a_leaf() -> None:
    """At a leaf the target's draw is committed all the same."""
    draws = {-1: 7, 0: 1, 2: 9, 4: 3}
    assert walk(TOKENS, PARENTS, draws.__getitem__, limit=10).tokens == (7, 1, 9, 3)


def test_walk_without_candidates_is_plain_decoding() -> None:
    """No tree: one draw."""
    assert walk((), (), lambda node: 42, limit=5).tokens == (42,)


def test_walk_refuses_tokens_without_parents() -> None:
    """A tree that lost some on its way is no tree."""
    with pytest.raises(ValueError, match="shorter"):
        walk(TOKENS, PARENTS[:-1], lambda node: 7, limit=5)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_walk_stops_at_the_limit(limit: int) -> None:
    """No more tokens than asked for, and the last one is a draw after an accepted node."""
    draws = {-1: 7, 0: 1, 2: 9, 4: 3}
    result = walk(TOKENS, PARENTS, draws.__getitem__, limit=limit)
    assert result.tokens == (7, 1, 9)[:limit]
    assert len(result.path) == limit - 1


def test_walk_draws_only_along_the_way() -> None:
    """Nodes off the path are not drawn at."""
    visited: list[int] = []

    def draw(node: int) -> int:
        visited.append(node)
        return {-1: 8, 1: 3}[node]

    walk(TOKENS, PARENTS, draw, limit=9)
    assert visited == [-1, 1]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), max_size=12),
    st.lists(st.integers(0, 3), min_size=13, max_size=13),
)
def test_walk_commits_what_plain_decoding_draws(
    shape: list[tuple[int, int]], law: list[int]
) -> None:
    """Whatever the tree, the committed tokens are a prefix of the tokens drawn one by one."""
    tokens = [token for token, _ in shape]
    parents = [parent % (node + 1) - 1 for node, (_, parent) in enumerate(shape)]

    def text_of(node: int) -> list[int]:
        text: list[int] = []
        while node >= 0:
            text.insert(0, tokens[node])
            node = parents[node]
        return text

    def plain(text: list[int]) -> int:
        return law[(sum(3 * t + 1 for t in text) + len(text)) % 13]

    result = walk(tokens, parents, lambda node: plain(text_of(node)), limit=20)
    expected: list[int] = []
    for _ in result.tokens:
        expected.append(plain(expected))
    assert list(result.tokens) == expected
