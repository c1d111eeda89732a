"""What a target records of its candidates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.speculation.pool import CandidatePool


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=24),
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.booleans(),
)
def test_sorting_out_tells_what_re_rooting_does(
    nodes: list[tuple[int, int]], tokens: list[int], is_over: bool
) -> None:
    """The nodes walked and dropped are those by which the pool shrinks; at the end nothing stays."""
    pool = CandidatePool(5, 64)
    parents = [min(parent, index) for index, (_, parent) in enumerate(nodes)]
    pool.graft(
        [token for token, _ in nodes],
        parents,
        [0.5] * len(nodes),
        0,
        [],
        lambda estimate: estimate,
    )
    before = pool.size
    walked, dropped = pool.sort_out(tokens, is_over=is_over)
    assert pool.size == before, "sorting out changes nothing"
    assert len({id(node) for node in (*walked, *dropped)}) == len(walked) + len(dropped)
    assert [node.token for node in walked] == tokens[: len(walked)]
    if is_over:
        assert len(walked) + len(dropped) == before
    else:
        assert pool.reroot(tokens) == len(dropped)
        assert pool.size == before - len(walked) - len(dropped)


@pytest.mark.parametrize("is_over", [False, True])
def test_an_empty_pool(is_over: bool) -> None:
    """Has nothing to sort."""
    assert CandidatePool(0, 4).sort_out([1, 2], is_over=is_over) == ([], [])
