"""Keys of paths: nodes of trees are equal exactly if their keys are, whatever tree or message they came in.

The key of a text is the sum, modulo 2^64, of a scrambled number for each of its tokens and their positions. A sum can be taken
over all paths of a tree at once, and extended from any point of a text. Two different paths of a session have the same
key with a probability of 2^-64 a pair; that would cost a candidate, never change a text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]


def terms(tokens_N: Int64s, depths_N: Int64s) -> Uint64s:
    """What each token adds to the key of its text.

    Args:
        tokens_N: Token ids.
        depths_N: Number of tokens from the start of the text to each, itself included.
    """
    mixed = tokens_N.astype(np.uint64) + (depths_N.astype(np.uint64) << np.uint64(32))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    keys: Uint64s = mixed ^ (mixed >> np.uint64(31))
    return keys


def jumps_of(parents_N: Int64s) -> list[Int64s]:
    """Ancestors at distances 1, 2, 4, ... of each node, as far as any node has one: -1 where it has none.

    With an entry more than there are nodes, -1, so that an index of -1 stays one. `add_up` and `multiply` take them.

    Args:
        parents_N: Index of each parent, -1 for none; less than the node's own.
    """
    ancestors = np.concatenate((parents_N, (-1,)))
    jumps: list[Int64s] = []
    while ancestors[:-1].max(initial=-1) >= 0:
        jumps.append(ancestors)
        ancestors = ancestors[ancestors]
    return jumps


def add_up(own_N: Uint64s | Int64s, jumps: list[Int64s]) -> Uint64s | Int64s:
    """Sum over each path from its first node down to the node itself."""
    sums: NDArray[Any] = np.concatenate((own_N, np.zeros(1, own_N.dtype)))
    for ancestors in jumps:
        sums = sums + sums[ancestors]
    return sums[:-1]


def multiply(own_N: NDArray[np.float64], jumps: list[Int64s]) -> NDArray[np.float64]:
    """Product over each path from its first node down to the node itself."""
    products = np.concatenate((own_N, (1.0,)))
    for ancestors in jumps:
        products = products * products[ancestors]
    return products[:-1]
