"""The pools of all sessions do what a pool in loops does, whatever comes in whatever order."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.actors.target.candidates.plain_pool import PlainNode, PlainPool

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


def paths(pools: Pools, row: int, length: int) -> dict[tuple[int, ...], tuple[float, float, int]]:
    """Value, stated probability and drafter of every path of a session, whose text has this length."""
    found: dict[tuple[int, ...], tuple[float, float, int]] = {}
    names: list[tuple[int, ...]] = []
    for column in range(int(pools.sizes_S[row])):
        parent = int(pools.parents_SP[row, column])
        assert parent < column
        path = (*(names[parent] if parent >= 0 else ()), int(pools.tokens_SP[row, column]))
        assert pools.depths_SP[row, column] == length + len(path)
        names.append(path)
        assert path not in found
        found[path] = (
            float(pools.values_SP[row, column]),
            float(pools.estimates_SP[row, column]),
            int(pools.drafters_SP[row, column]),
        )
    return found


def tree(rng: random.Random, size: int) -> tuple[list[int], list[int], list[int]]:
    """A random tree; siblings may be equal."""
    tokens = [rng.randrange(VOCAB) for _ in range(size)]
    parents = [rng.randint(-1, node - 1) for node in range(size)]
    return tokens, parents, [rng.randrange(256) for _ in range(size)]


def onward(plain: PlainPool, rng: random.Random) -> list[int]:
    """Tokens that a text gets: rather what candidates foresaw."""
    node, tokens = plain.root, list[int]()
    for _ in range(rng.randint(1, 3)):
        foreseen = list(node.children)
        tokens.append(rng.choice(foreseen) if foreseen and rng.random() < 0.7 else rng.randrange(4))
        node = node.children.get(tokens[-1], PlainNode(-1, 1.0, 1.0))
    return tokens


@pytest.mark.parametrize("seed", range(40))
def test_is_a_pool_in_loops(seed: int) -> None:
    """Fresh, late, repeated and wrong trees of many sessions at once, of equal texts too; the target's own candidates; commits and ends."""
    rng = random.Random(seed)
    capacity = rng.choice([5, 12, 400])
    pools, plain = Pools(ROWS, capacity), [PlainPool(capacity) for _ in range(ROWS)]
    texts = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 5))] for _ in range(ROWS)]
    texts = texts if seed % 2 else [list(texts[0]) for _ in texts]
    for turn in range(12):
        rows = rng.sample(range(ROWS), rng.randint(1, ROWS))
        if rng.random() < 0.2:
            pools.clear(rows[0])
            plain[rows[0]], texts[rows[0]] = PlainPool(capacity), [rng.randrange(VOCAB)]
        lengths = np.array([len(texts[row]) for row in rows])
        keys_SL = keys_of(texts)
        rooted = rng.sample(range(len(rows)), rng.randint(0, len(rows)))
        own = [(e, token) for e in rooted for token in rng.sample(range(VOCAB), 3)]
        entries = np.array([e for e, _ in own], np.int64)
        pools.add_children(
            np.array(rows)[entries],
            lengths[entries],
            keys_SL[np.array(rows)[entries], lengths[entries]],
            np.array([token for _, token in own], np.int64),
            np.array([(token + 1) / 8.0 for _, token in own]),
            -turn,
        )
        for entry, token in own:
            plain[rows[entry]].add_child(token, (token + 1) / 8.0, -turn)
        trees = [tree(rng, rng.randint(0, 14)) for _ in rows]
        trees = trees if rng.random() < 0.7 else trees[:1] * len(rows)
        cuts = [rng.randint(max(len(texts[row]) - 2, 0), len(texts[row])) for row in rows]
        base = Base(
            rows_E=np.array(rows), starts_E=np.array(cuts), lengths_E=lengths, keys_SL=keys_SL
        )
        trust = rng.choice([1.0, 0.3])
        grafted = pools.graft(frame(trees), base, turn, trust)
        reach = rng.randint(1, 6)
        open_E = pools.open(np.array(rows), lengths + reach)
        for entry, row in enumerate(rows):
            fates = plain[row].graft(trees[entry], texts[row][cuts[entry] :], turn, trust)
            told = grafted.added_E[entry], grafted.stale_E[entry], grafted.refused_E[entry]
            assert open_E[entry] == pytest.approx(plain[row].open(reach))
            assert told == fates
        compare(pools, plain, texts)
        dropped = []
        for row in rows:
            tokens, before = onward(plain[row], rng), len(plain[row].paths())
            before -= plain[row].foreseen(tokens)
            texts[row] += tokens
            plain[row].reroot(tokens)
            dropped.append(before - len(plain[row].paths()))
        lengths = np.array([len(texts[row]) for row in rows])
        assert pools.reroot(np.array(rows), lengths, keys_of(texts)).tolist() == dropped
        compare(pools, plain, texts)


def compare(pools: Pools, plain: list[PlainPool], texts: list[list[int]]) -> None:
    """All that waits."""
    sizes = []
    for row, text in enumerate(texts):
        expected, found = plain[row].paths(), paths(pools, row, len(text))
        assert found.keys() == expected.keys()
        for path, values in expected.items():
            assert found[path] == pytest.approx(values)
        sizes.append(len(expected))
    assert pools.sizes_S.tolist() == sizes
