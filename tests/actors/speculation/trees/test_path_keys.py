"""Keys of paths, and sums over paths, against loops."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.speculation.trees.path_keys import add_up, jumps_of, multiply, terms


def test_terms_tell_tokens_and_positions_apart() -> None:
    """No two of 300,000 pairs are equal, and neither are sums of two where tokens change places."""
    tokens, depths = np.meshgrid(np.arange(1000), np.arange(1, 301))
    keys = terms(tokens.ravel(), depths.ravel())
    assert len(np.unique(keys)) == len(keys)
    here, there = keys.reshape(300, 1000)[:2]
    swapped = (here[:, None] + there)[np.triu_indices(1000)]
    assert len(np.unique(swapped)) == len(swapped)
    assert not np.isin((here[:, None] + there)[np.tril_indices(1000, -1)], swapped).any()


def test_terms_are_scrambled() -> None:
    """Each bit is set in half of them, for tokens and positions as for other large numbers."""
    for tokens, depths in (
        (np.arange(20_000), np.ones(20_000)),
        (np.zeros(20_000), np.arange(20_000)),
    ):
        keys = terms(tokens.astype(np.int64), depths.astype(np.int64))
        shares = [float((keys >> np.uint64(bit) & np.uint64(1)).mean()) for bit in range(64)]
        assert shares == pytest.approx([0.5] * 64, abs=0.02)


@pytest.mark.parametrize("seed", range(6))
def test_sums_and_products_over_paths(seed: int) -> None:
    """From the first node of each path down, in trees of any depth."""
    rng = np.random.default_rng(seed)
    size = (0, 1, 2, 9, 40, 200)[seed]
    parents = np.array([rng.integers(-1, node) for node in range(size)], dtype=np.int64)
    if seed == 4:
        parents = np.arange(-1, size - 1)  # a chain
    counts, factors = rng.integers(1, 9, size), rng.random(size) + 0.5
    sums: list[int] = []
    products: list[float] = []
    for node, parent in enumerate(parents.tolist()):
        sums.append(int(counts[node]) + (sums[parent] if parent >= 0 else 0))
        products.append(float(factors[node]) * (products[parent] if parent >= 0 else 1.0))
    jumps = jumps_of(parents)
    assert add_up(counts, jumps).tolist() == sums
    assert multiply(factors, jumps).tolist() == pytest.approx(products)


def test_keys_of_paths_keep_all_their_bits() -> None:
    """Sums are taken modulo 2^64: a digit less, and nodes of different texts would be taken for one."""
    keys = terms(np.arange(5), np.array([1, 2, 3, 1, 2]))
    own = [int(key) for key in keys]
    sums = add_up(keys, jumps_of(np.array([-1, 0, 1, -1, 3])))
    wanted = [own[0], own[0] + own[1], own[0] + own[1] + own[2], own[3], own[3] + own[4]]
    assert max(wanted) >= 2**64
    assert sums.tolist() == [total % 2**64 for total in wanted]


def test_no_more_jumps_than_there_are_levels() -> None:
    """None where all nodes are below the root, one for two levels, two for four: so many passes a sum costs."""
    parents = [np.array([-1, -1, -1]), np.array([-1, 0, 0]), np.array([-1, 0, 1, 2])]
    assert [len(jumps_of(parents_N)) for parents_N in parents] == [0, 1, 2]
