"""The target's uniforms for verifiers that need fresh randomness: a function of (seed, position), nothing else.

They belong to the position of the base that a tree hangs below, so a round that is repeated after a restart meets the
same decisions. Drafters must not use them: their candidates have to be independent of the decisions. They come from
another domain than the Gumbel noise of the same seed and position, which the plain draws of the session use.

Pure. Constants are part of what a seed promises; `tests/actors/speculation/noise/test_uniforms.py` holds golden values.
"""

from __future__ import annotations

import numpy as np

from outrider.actors.speculation.noise.seeds import GOLDEN_WORD, check_seed, mix64s_, mix_pair
from outrider.actors.speculation.sampling.random_acts import Float64s

_DOMAIN = 0x7665726469637473
"""Keeps these keys apart from those of the noise and of derived seeds, which the same mixing function makes."""

_DROPPED_BITS = np.uint64(11)
"""A float64 has 53 digits."""


def uniforms(seed: int, position: int, count: int) -> Float64s:
    """Uniforms for the round whose tree hangs below the first `position` tokens.

    Args:
        seed: Of the session, 64 bits, unsigned.
        position: Length of the base, in tokens.
        count: How many are needed; fewer are a prefix of more.

    Returns:
        float64 (count,) in [0, 1), multiples of 2^-53.
    """
    key = np.uint64(mix_pair(check_seed(seed) ^ _DOMAIN, position))
    # SplitMix64 (Steele, Lea and Flood 2014). Array arithmetic wraps silently, which is what is wanted.
    state_U = mix64s_(np.arange(1, count + 1, dtype=np.uint64) * GOLDEN_WORD + key)
    uniforms_U: Float64s = (state_U >> _DROPPED_BITS) * np.float64(2.0**-53)
    return uniforms_U
