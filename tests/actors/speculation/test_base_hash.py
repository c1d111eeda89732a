"""The rolling hash that names a base."""

from __future__ import annotations

import random

from outrider.actors.speculation.trees import base_hash


def test_hash_is_rolling() -> None:
    """Hashing in pieces gives the hash of the whole."""
    tokens = [5, 0, 4095, 128_000, 7, 7]
    whole = base_hash.extend_all(base_hash.EMPTY, tokens)
    pieces = base_hash.extend_all(base_hash.extend_all(base_hash.EMPTY, tokens[:2]), tokens[2:])
    one_by_one = base_hash.EMPTY
    for token in tokens:
        one_by_one = base_hash.extend(one_by_one, token)
    assert whole == pieces == one_by_one


def test_hash_never_changes() -> None:
    """The definition is part of the protocol: two releases must agree."""
    assert base_hash.extend_all(base_hash.EMPTY, [0, 1, 2, 3]) == 13326659608011028537


def test_hash_tells_texts_apart() -> None:
    """Length, order and every token matter; no collision among 200,000 short texts."""
    rng = random.Random(1)
    texts = {tuple(rng.randrange(50) for _ in range(rng.randrange(12))) for _ in range(200_000)}
    assert len({base_hash.extend_all(base_hash.EMPTY, t) for t in texts}) == len(texts)
    assert all(0 <= base_hash.extend_all(base_hash.EMPTY, t) < 2**64 for t in list(texts)[:1000])
