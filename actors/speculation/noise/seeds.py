"""Seeds: 64-bit unsigned integers that name a request's noise.

Everything here but `fresh_seed` is pure, and its results are part of what a seed promises: changing a constant
changes every text that a seed has ever given. `tests/actors/speculation/noise/test_seeds.py` holds golden values.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

Uint64s = NDArray[np.uint64]

NUM_SEEDS = 2**64
"""A seed is in [0, NUM_SEEDS)."""

_GOLDEN_64 = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio, odd: multiples of it are spread evenly over the 64-bit integers."""

GOLDEN_WORD = np.uint64(_GOLDEN_64)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
"""The same, and the constants of `mix64`, for arrays."""

_SEQUENCE_DOMAIN = 0x6F7574726964_6572
"""Keeps seeds of further sequences apart from noise keys, which come from the same mixing function."""


def check_seed(seed: int) -> int:
    """Return `seed`, or raise `ValueError` if it is not a 64-bit unsigned integer."""
    if not 0 <= seed < NUM_SEEDS:
        raise ValueError(
            f"seed is {seed}; it must be at least 0 and less than 2**64. "
            "Pass another seed, or none to have one chosen."
        )
    return seed


def mix64(value: int) -> int:
    """Scramble a 64-bit integer: a bijection in which each input bit flips about half of the output bits.

    Source: the finaliser of SplitMix64 (Steele, Lea and Flood 2014, OOPSLA, "Fast splittable pseudorandom number
    generators"), with the constants of Stafford's variant 13.
    """
    value &= NUM_SEEDS - 1
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (NUM_SEEDS - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (NUM_SEEDS - 1)
    return value ^ (value >> 31)


def mix_pair(first: int, second: int) -> int:
    """Scramble two integers into 64 bits: for a fixed `first` injective in `second`, and the reverse.

    The first is mixed before the second is added, so that no simple relation between firsts (such as their being
    neighbours) makes the values of one a shifted copy of those of another.
    """
    return mix64(mix64(first + _GOLDEN_64) + second * _GOLDEN_64)


def mix_pairs(firsts_M: Uint64s, seconds_M: Uint64s) -> Uint64s:
    """`mix_pair` of many pairs at once: uint64, of the broadcast shape."""
    mixed_M = mix64s_(firsts_M + GOLDEN_WORD)
    return mix64s_(mixed_M + seconds_M * GOLDEN_WORD)


def mix64s_(values_M: Uint64s) -> Uint64s:
    """`mix64` of many values at once, in place."""
    values_M ^= values_M >> _SHIFTS[0]
    values_M *= _FACTORS[0]
    values_M ^= values_M >> _SHIFTS[1]
    values_M *= _FACTORS[1]
    values_M ^= values_M >> _SHIFTS[2]
    return values_M


def derive_seed(seed: int, index: int) -> int:
    """Return the seed of sequence `index` of a request; that of sequence 0 is the request's own.

    Raises:
        ValueError: If `seed` is not a 64-bit unsigned integer or `index` is negative.
    """
    check_seed(seed)
    if index < 0:
        raise ValueError(f"sequence index is {index}; it must be at least 0")
    return seed if index == 0 else mix_pair(seed ^ _SEQUENCE_DOMAIN, index)


def fresh_seed() -> int:
    """Return a seed from the operating system's randomness. Not pure: for shells only."""
    return int.from_bytes(os.urandom(8))
