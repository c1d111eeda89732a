"""The noise of single tokens, for drafters that ask about a few of them: `gumbel.py`'s, in plain Python and without a table.

Operations on arrays cost more than a few tokens are worth. The quantile is computed instead of looked up, so the bits are not the
target's: the difference is below 1e-5, which can only change which of two nearly equal candidates is proposed. Pure.
"""

from __future__ import annotations

import math

from outrider.actors.speculation.noise.gumbel_host import HASH_MULTIPLIERS, HASH_SHIFTS
from outrider.actors.speculation.noise.seeds import mix_pair

_WORD = 0xFFFFFFFF
_ROUNDS = tuple(zip(HASH_MULTIPLIERS, HASH_SHIFTS, strict=True))
_PREMIX_OFFSET, _PREMIX_SHIFT = 0x9E3779B9, 17


def token_noise(seed: int, position: int, token: int) -> float:
    """What the target adds to the score of a token.

    Args:
        seed: Of the sequence.
        position: Index of the token in the whole sequence, the prompt included.
        token: Its id.
    """
    key = mix_pair(seed, position)
    hash_ = (token + _PREMIX_OFFSET) & _WORD
    hash_ ^= hash_ >> _PREMIX_SHIFT
    for multiplier, shift in _ROUNDS:
        hash_ = hash_ * multiplier & _WORD
        hash_ ^= hash_ >> shift
    hash_ ^= key & _WORD
    carried = key >> 32
    for multiplier, shift in _ROUNDS:
        hash_ = hash_ * multiplier & _WORD
        hash_ ^= hash_ >> shift
        hash_ = (hash_ + carried) & _WORD
        carried = 0
    return -math.log(-math.log1p(-(hash_ + 0.5) / 2**32))
