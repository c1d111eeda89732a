"""Rolling 64-bit hash of committed tokens: two parties that agree on length and hash agree on the text.

Not cryptographic: it guards against lost, reordered and stale messages between actors that trust each other.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Uint64s = NDArray[np.uint64]

EMPTY = 0x6A09E667F3BCC908
"""Hash of no tokens. An arbitrary constant, so that token 0 at the start changes the hash."""

_MULTIPLIER = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF


def extend(value: int, token: int) -> int:
    """Hash of a text one token longer.

    Args:
        value: Hash of the text so far.
        token: The next token id, not negative.
    """
    value = ((value ^ (token + 1)) * _MULTIPLIER) & _MASK
    return value ^ (value >> 29)


def extend_all(value: int, tokens: Iterable[int]) -> int:
    """Hash of a text that is some tokens longer."""
    for token in tokens:
        value = ((value ^ (token + 1)) * _MULTIPLIER) & _MASK
        value ^= value >> 29
    return value


def extend_each(values_E: Uint64s, tokens_E: NDArray[np.int64]) -> Uint64s:
    """`extend` of several texts by a token each."""
    mixed_E = (values_E ^ (tokens_E.astype(np.uint64) + np.uint64(1))) * np.uint64(_MULTIPLIER)
    return mixed_E ^ (mixed_E >> np.uint64(29))


def extend_by_prefixes(values_E: Uint64s, tokens_ET: NDArray[np.int64]) -> Uint64s:
    """Hashes of several texts after each token more, (E, T)."""
    hashes_ET = np.empty(tokens_ET.shape, np.uint64)
    if len(values_E) == 1:
        value = int(values_E[0])
        for step, token in enumerate(tokens_ET[0].tolist()):
            value = extend(value, token)
            hashes_ET[0, step] = value
        return hashes_ET
    for step in range(tokens_ET.shape[1]):
        hashes_ET[:, step] = values_E = extend_each(values_E, tokens_ET[:, step])
    return hashes_ET


LONG = 64
"""Tokens of one text from which on the loop over all texts at once would cost more than one over each; also where all texts together
have no more."""


def extend_rows(
    values_E: Uint64s, tokens_ET: NDArray[np.int64], counts_E: NDArray[np.int64]
) -> Uint64s:
    """Hashes of many texts, each longer by its first `counts_E` tokens."""
    hashes_E = values_E.copy()
    counts = counts_E.tolist()
    if tokens_ET.shape[1] > LONG or sum(counts) <= LONG:
        for entry, (value, count) in enumerate(zip(values_E.tolist(), counts, strict=True)):
            hashes_E[entry] = extend_all(value, tokens_ET[entry, :count].tolist())
        return hashes_E
    for step in range(tokens_ET.shape[1]):
        longer_E = extend_each(hashes_E, tokens_ET[:, step])
        hashes_E = np.where(step < counts_E, longer_E, hashes_E)
    return hashes_E
