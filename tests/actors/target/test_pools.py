"""The pools of all sessions do what a pool in loops does, whatever comes in whatever order."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.actors.target.plain_pool import PlainPool

from outrider.actors.exchange.candidates import Candidates
from outrider.actors.speculation.trees.path_keys import Uint64s, terms
from outrider.actors.speculation.trees.ragged import starts_of
from outrider.actors.target.candidates.candidate_pools import Base, Pools

VOCAB = 4
ROWS = 5


def key_of(text: list[int]) -> int:
    """Key of a text from its start."""
    keys = terms(np.array(text, np.int64), np.arange(1, len(text) + 1))
    return int(keys.sum(dtype=np.uint64))


def keys_of(texts: list[list[int]]) -> Uint64s:
    """Keys of texts at each length."""
    keys = np.zeros((len(texts), 60), np.uint64)
    for row, text in enumerate(texts):
        added = np.cumsum(terms(np.array(text), np.arange(1, len(text) + 1)), dtype=np.uint64)
        keys[row, 1 : len(text) + 1] = added
    return keys


def frame(trees: list[tuple[list[int], list[int], list[int]]]) -> Candidates:
    """Trees of several sessions."""
    count = len(trees)
    zeros = np.zeros(count, np.uint64)
    return Candidates(
        handles_E=zeros,
        hashes_E=zeros,
        lengths_E=np.zeros(count, np.int64),
        numbers_E=np.zeros(count, np.int64),
        starts_E=starts_of(np.array([len(tree[0]) for tree in trees], np.int64)),
        tokens_N=np.array([t for tree in trees for t in tree[0]], np.int64),
        parents_N=np.array([p for tree in trees for p in tree[1]], np.int64),
        estimates_N=np.array([e for tree in trees for e in tree[2]], np.uint8),
    )


def paths(pools: Pools, row: int) -> dict[tuple[int, ...], tuple[float, int]]:
    """Value and drafter of every path of a session."""
    found: dict[tuple[int, ...], tuple[float, int]] = {}
    names: list[tuple[int, ...]] = []
    for column in range(int(pools.sizes_S[row])):
        parent = int(pools.parents_SP[row, column])
        assert parent < column
        path = (*(names[parent] if parent >= 0 else ()), int(pools.tokens_SP[row, column]))
        names.append(path)
        assert path not in found
        found[path] = float(pools.values_SP[row, column]), int(pools.drafters_SP[row, column])
    return found


def tree(rng: random.Random, size: int) -> tuple[list[int], list[int], list[int]]:
    """A random tree; siblings may be equal."""
    tokens = [rng.randrange(VOCAB) for _ in range(size)]
    parents = [rng.randint(-1, node - 1) for node in range(size)]
    return tokens, parents, [rng.randrange(256) for _ in range(size)]


@pytest.mark.parametrize("seed", range(40))
def test_is_a_pool_in_loops(seed: int) -> None:
    """Fresh, late, repeated and wrong trees of many sessions at once, between commits."""
    rng = random.Random(seed)
    pools, plain = Pools(ROWS, 400), [PlainPool() for _ in range(ROWS)]
    texts = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 5))] for _ in range(ROWS)]
    for turn in range(12):
        rows = rng.sample(range(ROWS), rng.randint(1, ROWS))
        trees = [tree(rng, rng.randint(0, 14)) for _ in rows]
        cuts = [rng.randint(max(len(texts[row]) - 2, 0), len(texts[row])) for row in rows]
        base = Base(
            rows_E=np.array(rows),
            starts_E=np.array(cuts),
            lengths_E=np.array([len(texts[row]) for row in rows]),
            keys_SL=keys_of(texts),
        )
        grafted = pools.graft(frame(trees), base, np.full(len(rows), turn))
        for entry, row in enumerate(rows):
            added, stale = plain[row].graft(*trees[entry], texts[row][cuts[entry] :], turn)
            assert (grafted.added_E[entry], grafted.stale_E[entry]) == (added, stale)
        commits = {row: [rng.randrange(VOCAB) for _ in range(rng.randint(1, 3))] for row in rows}
        before = [len(plain[row].paths()) for row in rows]
        foreseen = [plain[row].foreseen(commits[row]) for row in rows]
        for row, tokens in commits.items():
            texts[row] += tokens
            plain[row].reroot(tokens)
        dropped = pools.reroot(
            np.array(rows), np.array([len(texts[row]) for row in rows]), keys_of(texts)
        )
        after = [len(plain[row].paths()) for row in rows]
        assert dropped.tolist() == [
            b - f - a for b, f, a in zip(before, foreseen, after, strict=True)
        ]
        for row in range(ROWS):
            expected = plain[row].paths()
            found = paths(pools, row)
            assert found.keys() == expected.keys()
            for path, (value, drafter) in expected.items():
                assert found[path][0] == pytest.approx(value)
                assert found[path][1] == drafter


def test_a_full_pool_takes_no_more_and_stays_a_tree() -> None:
    """What has no room is refused, and so is all that would hang below it."""
    pools = Pools(1, 5)
    base = Base(
        rows_E=np.array([0]),
        starts_E=np.array([0]),
        lengths_E=np.array([0]),
        keys_SL=np.zeros((1, 1), np.uint64),
    )
    chain = (list(range(4)), [-1, 0, 1, 2], [200] * 4)
    other = ([3, 2, 1, 0], [-1, 0, 1, 2], [200] * 4)
    assert pools.graft(frame([chain]), base, np.zeros(1, np.int64)).refused_E[0] == 0
    assert pools.graft(frame([other]), base, np.zeros(1, np.int64)).refused_E[0] == 3
    assert set(paths(pools, 0)) == {(0,), (0, 1), (0, 1, 2), (0, 1, 2, 3), (3,)}
