"""The candidate pool: a set union that survives loss, repetition and reordering."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.speculation.pool import CandidatePool, Selection


def same(stated: float) -> float:
    """No calibration."""
    return stated


def graft(
    pool: CandidatePool, tree: dict[tuple[int, ...], float], passed: tuple[int, ...] = ()
) -> None:
    """Grafts a tree given as paths with estimates."""
    paths = sorted(tree, key=len)
    index = {path: i for i, path in enumerate(paths)}
    pool.graft(
        [path[-1] for path in paths],
        [index[path[:-1]] + 1 if len(path) > 1 else 0 for path in paths],
        [tree[path] for path in paths],
        0,
        passed,
        same,
    )


def paths_of(selection: Selection) -> set[tuple[int, ...]]:
    """The selected paths, as token tuples."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(selection.tokens, selection.parents, strict=True):
        paths.append(((*paths[parent], token)) if parent >= 0 else (token,))
    return set(paths)


def everything(pool: CandidatePool) -> set[tuple[int, ...]]:
    """All paths that the pool holds."""
    return paths_of(pool.select(10_000, 10_000))


TREE = {(1,): 0.8, (2,): 0.1, (1, 3): 0.5, (1, 4): 0.4, (1, 3, 5): 0.9}


def test_select_is_best_first_and_closed_under_ancestors() -> None:
    """The most probable paths come first, parents before children."""
    pool = CandidatePool(10, 100)
    graft(pool, TREE)
    assert paths_of(pool.select(3, 9)) == {(1,), (1, 3), (1, 3, 5)}
    assert paths_of(pool.select(9, 2)) == {(1,), (2,), (1, 3), (1, 4)}
    values = pool.select(9, 9).values
    assert values[0] == 0.8
    assert all(a >= b for a, b in pairwise(values))


def test_reroot_keeps_what_grew_below() -> None:
    """After a verdict the subtree of the committed path is the next tree."""
    pool = CandidatePool(10, 100)
    graft(pool, TREE)
    assert pool.reroot([1, 3]) == 2
    assert (pool.length, pool.size) == (12, 1)
    assert everything(pool) == {(5,)}
    assert abs(pool.select(1, 1).values[0] - 0.9) < 1e-12


def test_reroot_to_unknown_text_empties_the_pool() -> None:
    """A correction that nobody predicted leaves nothing."""
    pool = CandidatePool(10, 100)
    graft(pool, TREE)
    assert pool.reroot([1, 9]) == 4
    assert (pool.length, pool.size, everything(pool)) == (12, 0, set())


def test_late_tree_is_followed_along_the_committed_tokens() -> None:
    """A tree of an older base gives its part below the present base; the rest is stale."""
    pool = CandidatePool(10, 100)
    pool.reroot([1, 3])
    paths = sorted(TREE, key=len)
    index = {path: i for i, path in enumerate(paths)}
    result = pool.graft(
        [p[-1] for p in paths],
        [index[p[:-1]] + 1 if len(p) > 1 else 0 for p in paths],
        [TREE[p] for p in paths],
        0,
        (1, 3),
        same,
    )
    assert everything(pool) == {(5,)}
    assert (result.added, result.stale) == (1, 2)


def test_a_candidate_that_was_worth_nothing_does_not_spoil_what_grows_below() -> None:
    """Once it is committed its value is past: below it the estimates count as below any other, then and later."""
    pool = CandidatePool(10, 100)
    graft(pool, {(1,): 0.9, (2,): 0.0, (2, 3): 0.8, (2, 3, 4): 0.5})
    pool.reroot([2])
    assert [round(value, 9) for value in pool.select(9, 9).values] == [0.8, 0.4]
    graft(pool, {(3,): 0.8, (3, 5): 0.25, (3, 4): 0.5, (3, 4, 6): 0.5})
    assert [round(value, 9) for value in pool.select(9, 9).values] == [0.8, 0.4, 0.2, 0.2]
    pool.reroot([3])
    assert [round(value, 9) for value in pool.select(9, 9).values] == [0.5, 0.25, 0.25]


@given(
    st.lists(st.sampled_from([0.0, 0.001, 0.1, 0.9, 1.0]), min_size=2, max_size=40),
    st.integers(1, 39),
)
def test_values_below_the_root_do_not_depend_on_what_it_was_worth(
    estimates: list[float], walked: int
) -> None:
    """A chain, of which some is committed: what is left is worth what it would be in a pool of its own."""
    walked = min(walked, len(estimates) - 1)
    chain = {tuple(range(1, depth + 1)): value for depth, value in enumerate(estimates, 1)}
    pool, fresh = CandidatePool(0, 100), CandidatePool(walked, 100)
    graft(pool, chain)
    for token in range(1, walked + 1):
        pool.reroot([token])
    graft(fresh, {path[walked:]: value for path, value in chain.items() if len(path) > walked})
    found, expected = pool.select(99, 99).values, fresh.select(99, 99).values
    assert len(found) == len(expected) == len(estimates) - walked
    assert all(abs(a - b) <= 1e-9 * b for a, b in zip(found, expected, strict=True))


def test_full_pool_refuses_and_counts() -> None:
    """A drafter that runs wild is bounded, and no child hangs below a refused node."""
    pool = CandidatePool(0, 2)
    graft(pool, TREE)
    assert pool.size == 2
    assert everything(pool) == {(1,), (2,)}


def test_values_survive_a_very_long_text() -> None:
    """Products of estimates do not vanish over thousands of commits that the tree foresaw."""
    pool = CandidatePool(0, 100)
    graft(pool, {(0,): 0.3, (0, 0): 0.3})
    for _ in range(3000):
        pool.reroot([0])
        graft(pool, {(0,): 0.3, (0, 0): 0.3})
        assert abs(pool.select(1, 1).values[0] - 0.3) < 1e-9


trees = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), max_size=10)


@given(st.lists(trees, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_order_repetition_and_splitting_do_not_matter(
    batches: list[list[list[int]]], rng: random.Random
) -> None:
    """Any order of the same messages, some of them twice, gives the same pool."""

    def closed(batch: list[list[int]]) -> dict[tuple[int, ...], float]:
        return {tuple(path[: i + 1]): 0.5 for path in batch for i in range(len(path))}

    first, second = CandidatePool(3, 1000), CandidatePool(3, 1000)
    for batch in batches:
        graft(first, closed(batch))
    shuffled = [*batches, rng.choice(batches)]
    rng.shuffle(shuffled)
    for batch in shuffled:
        graft(second, closed(batch))
    assert everything(first) == everything(second)
    assert first.size == second.size == len(everything(first))


@given(trees, st.lists(st.integers(0, 2), min_size=1, max_size=3))
def test_reroot_equals_grafting_afterwards(batch: list[list[int]], tokens: list[int]) -> None:
    """Whether candidates arrive before or after the verdict, the pool is the same."""
    tree = {tuple(path[: i + 1]): 0.5 for path in batch for i in range(len(path))}
    before, after = CandidatePool(5, 1000), CandidatePool(5, 1000)
    graft(before, tree)
    before.reroot(tokens)
    after.reroot(tokens)
    graft(after, tree, tuple(tokens))
    assert everything(before) == everything(after)
    assert before.size == after.size
