"""The rolling hash that names a base."""

from __future__ import annotations

import random

import numpy as np
import pytest

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


@pytest.mark.parametrize("longest", [0, 3, base_hash.LONG, base_hash.LONG + 5])
@pytest.mark.parametrize("texts", [0, 1, 40])
def test_many_texts_at_once(texts: int, longest: int) -> None:
    """Each by its own number of tokens, none and all of them included."""
    rng = np.random.default_rng(longest)
    values = rng.integers(0, 2**63, texts, dtype=np.uint64)
    tokens = rng.integers(0, 300_000, (texts, longest))
    counts = rng.integers(0, longest + 1, texts)
    counts[: texts // 4] = longest
    before = values.copy()
    found = base_hash.extend_rows(values, tokens, counts)
    assert found.tolist() == [
        base_hash.extend_all(value, row[:count])
        for value, row, count in zip(values.tolist(), tokens.tolist(), counts, strict=True)
    ]
    assert values.tolist() == before.tolist(), "what was passed is not written to"


@pytest.mark.parametrize("texts", [1, 2, 3])
def test_after_each_token_of_texts(texts: int) -> None:
    """One, and several side by side."""
    rng = np.random.default_rng(texts)
    values = rng.integers(0, 2**63, texts, dtype=np.uint64)
    tokens = rng.integers(0, 300_000, (texts, 5))
    assert base_hash.extend_by_prefixes(values, tokens).tolist() == [
        [base_hash.extend_all(value, row[: count + 1]) for count in range(5)]
        for value, row in zip(values.tolist(), tokens.tolist(), strict=True)
    ]


def test_a_text_without_a_number_is_refused() -> None:
    """One number of tokens for each."""
    with pytest.raises(ValueError, match="shorter"):
        base_hash.extend_rows(np.zeros(2, np.uint64), np.ones((2, 3), np.int64), np.array([3]))


def test_hash_never_changes() -> None:
    """The definition is part of the protocol: two releases must agree."""
    assert base_hash.extend_all(base_hash.EMPTY, [0, 1, 2, 3]) == 13326659608011028537


def test_hash_tells_texts_apart() -> None:
    """Length, order and every token matter; no collision among 200,000 short texts."""
    rng = random.Random(1)
    texts = {tuple(rng.randrange(50) for _ in range(rng.randrange(12))) for _ in range(200_000)}
    assert len({base_hash.extend_all(base_hash.EMPTY, t) for t in texts}) == len(texts)
    assert all(0 <= base_hash.extend_all(base_hash.EMPTY, t) < 2**64 for t in list(texts)[:1000])
