"""The noise of `gumbel.py` on the host, with NumPy: the same bits as torch's operations give, several times faster for few rows.

A small operation of torch costs some microseconds, of NumPy one, and there are two dozen. All work is in buffers that fit the
processor's cache and are made once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.noise.gumbel_table import (
    BIN_SHIFT,
    PLACE_MASK,
    Float32s,
    gumbel_table,
)

HASH_MULTIPLIERS = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB)
HASH_SHIFTS = (11, 15, 14)
"""Multipliers and shifts of the xor-shift-multiply rounds: Wellons' search for low-bias 32-bit hashes (2018)."""

Uint32s = NDArray[np.uint32]

_ROUNDS = tuple(
    (np.uint32(multiplier), np.uint32(shift))
    for multiplier, shift in zip(HASH_MULTIPLIERS, HASH_SHIFTS, strict=True)
)
_HALF = np.float32(0.5)
_BIN_SHIFT, _PLACE_MASK = np.uint32(BIN_SHIFT), np.uint32(PLACE_MASK)

_CHUNK = 16384
"""Values computed at a time: their five buffers stay in the cache, and the cost of the calls is small beside them."""


class HostNoise:
    """Computes rows of noise. Not for several threads at once."""

    def __init__(self, premixed_V: Uint32s) -> None:
        """
        Args:
            premixed_V: Scrambled token ids.
        """
        self._premixed_V = premixed_V
        self._values, self._slopes = gumbel_table()
        self._width = min(len(premixed_V), _CHUNK)
        self._height = max(1, _CHUNK // len(premixed_V))
        shape = (self._height, self._width)
        self._hash = np.empty(shape, np.uint32)
        self._spare = np.empty(shape, np.uint32)
        self._bins = np.empty(shape, np.intp)
        self._places = np.empty(shape, np.float32)
        self._looked_up = np.empty(shape, np.float32)

    def fill(self, noise_MV: Float32s, low_M1: Uint32s, high_M1: Uint32s) -> None:
        """Writes the noise of each row's key.

        Shapes:
            low_M1, high_M1: Halves of the keys.
        """
        num_rows, vocab_size = noise_MV.shape
        for row in range(0, num_rows, self._height):
            rows = slice(row, row + self._height)
            for column in range(0, vocab_size, self._width):
                columns = slice(column, column + self._width)
                self._fill(
                    noise_MV[rows, columns], self._premixed_V[columns], low_M1[rows], high_M1[rows]
                )

    def _fill(self, noise: Float32s, premixed: Uint32s, low_M1: Uint32s, high_M1: Uint32s) -> None:
        part = (slice(noise.shape[0]), slice(noise.shape[1]))
        hash_, spare, places = self._hash[part], self._spare[part], self._places[part]
        np.bitwise_xor(premixed, low_M1, out=hash_)
        for number, (multiplier, shift) in enumerate(_ROUNDS):
            hash_ *= multiplier
            np.right_shift(hash_, shift, out=spare)
            hash_ ^= spare
            if number == 0:
                hash_ += high_M1
        places[...] = hash_.view(np.int32)
        places += _HALF
        bits = places.view(np.uint32)
        bins, looked_up = self._bins[part], self._looked_up[part]
        np.right_shift(bits, _BIN_SHIFT, out=bins)
        bits &= _PLACE_MASK
        places[...] = bits
        # Every bin is in the table; `clip` only spares the check and a copy.
        self._slopes.take(bins, out=looked_up, mode="clip")
        np.multiply(looked_up, places, out=noise)
        self._values.take(bins, out=looked_up, mode="clip")
        noise += looked_up
