"""Seeds and the mixing of integers."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.speculation.noise.seeds import (
    NUM_SEEDS,
    check_seed,
    derive_seed,
    fresh_seed,
    mix64,
    mix_pair,
    mix_pairs,
)


def test_the_first_sequence_has_the_request_seed() -> None:
    """Asking for one sequence or for several gives the same first text."""
    assert [derive_seed(seed, 0) for seed in (0, 7, NUM_SEEDS - 1)] == [0, 7, NUM_SEEDS - 1]


def test_derived_seeds_never_change() -> None:
    """Golden values: a seed that was given to a user keeps its texts."""
    assert [
        derive_seed(0, 1),
        derive_seed(1, 1),
        derive_seed(1, 2),
        derive_seed(NUM_SEEDS - 1, 15),
    ] == [11930727182961697487, 5631414540416816493, 7214747077155327703, 3329914127084352744]


def test_derived_seeds_differ_and_fit() -> None:
    """Sequences of one request, and of requests with neighbouring seeds, have seeds of their own."""
    seeds = [derive_seed(seed, index) for seed in range(300) for index in range(1, 17)]
    assert len(set(seeds)) == len(seeds)
    assert all(check_seed(seed) == seed for seed in seeds)


def test_mixing_is_one_to_one_and_flips_half_of_the_bits() -> None:
    """Each of 64 input bits flips each of 64 output bits in 46 % to 54 % of 4096 cases."""
    values = [mix_pair(0, case) for case in range(4096)]
    assert len({mix64(value) for value in values}) == len(values)
    for bit in range(64):
        flips = np.array([mix64(v) ^ mix64(v ^ (1 << bit)) for v in values], dtype=np.uint64)
        per_bit = np.unpackbits(flips.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
        assert 0.46 < per_bit.min() <= per_bit.max() < 0.54


@pytest.mark.parametrize("seed", [-1, NUM_SEEDS])
def test_a_seed_outside_64_bits_is_refused(seed: int) -> None:
    """The message says what a seed may be."""
    with pytest.raises(ValueError, match=f"seed is {seed}; .* less than 2\\*\\*64"):
        derive_seed(seed, 0)


def test_a_negative_sequence_index_is_refused() -> None:
    """A sequence index counts from 0."""
    with pytest.raises(ValueError, match="sequence index is -1"):
        derive_seed(0, -1)


def test_fresh_seeds_are_valid_and_differ() -> None:
    """Chosen seeds use the full range."""
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert max(check_seed(seed) for seed in seeds) > 2**56


def test_pairs_are_mixed_alike_one_by_one_and_together() -> None:
    """Arrays wrap around 2^64 as unbounded integers do that are cut to 64 bits."""
    seeds = [0, 7, 2**63, NUM_SEEDS - 1]
    positions = [0, 3, 2**40, NUM_SEEDS - 1]
    together = mix_pairs(np.array(seeds, np.uint64), np.array(positions, np.uint64))
    assert together.tolist() == [mix_pair(s, p) for s, p in zip(seeds, positions, strict=True)]
