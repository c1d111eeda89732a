"""The table that turns 32 random bits into Gumbel noise without a transcendental function.

`gumbel.py` maps a hash to a float32 magnitude x in [0.5, 2^31] and a sign. With w = x / 2^32, positive sign means the
uniform u = 1 - w, negative sign u = w; the noise is the Gumbel quantile g(u) = -ln(-ln u), interpolated linearly
between points that are evenly spaced within each power of two, 1024 to an octave. The bin is read off the bits of x:
exponent and leading 10 mantissa bits; the remaining 13 mantissa bits are the place within the bin.

Error: interpolation alone is off by less than 1.3e-7 (w^2 |g''| <= 1 on either side, times (2^-10)^2 / 8); rounding
to float32 adds at most one unit in the last place of g, that is 2e-6 where |g| > 16 and 5e-7 where |g| < 4.

The numbers are reproducible on every platform because they are made from float64 +, -, * and / alone, each correctly
rounded by IEEE 754; no library's logarithm is involved.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]

BIN_SHIFT = 13
"""A float's bits shifted right by this are its bin: sign, 8 exponent bits, 10 mantissa bits."""

PLACE_MASK = (1 << BIN_SHIFT) - 1
"""The bits of a float that say where it is within its bin."""

BIN_MASK = (1 << (32 - BIN_SHIFT)) - 1
"""Clears what an arithmetic shift of a negative number fills in; also the greatest bin."""

_MIN_EXPONENT = 126
"""Biased exponent of 0.5, the least magnitude."""

_MAX_EXPONENT = 158
"""Biased exponent of 2^31, the greatest magnitude (reached only exactly)."""

_BINS_PER_OCTAVE = 1 << (23 - BIN_SHIFT)

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
"""ln 2 in two parts; the first has trailing zeros, so that its small multiples are exact."""


def _twice_atanh(z: Float64s) -> Float64s:
    """2 atanh(z) for |z| <= 1/3 by its Taylor series; the first term left out is below 1e-18."""
    square = z * z
    total = np.zeros_like(z)
    for odd in range(37, 0, -2):
        total = total * square + 1.0 / odd
    return 2.0 * z * total


def _ln(x: Float64s) -> Float64s:
    """Natural logarithm of positive normal numbers."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < 0.75
    mantissa = np.where(small, mantissa * 2.0, mantissa)
    octave = exponent - small
    return octave * _LN2_HIGH + (
        octave * _LN2_LOW + _twice_atanh((mantissa - 1.0) / (mantissa + 1.0))
    )


def _upper_quantile(w: Float64s) -> Float64s:
    """-ln(-ln(1 - w)) for 0 < w <= 1/2, accurate for small w."""
    return -_ln(_twice_atanh(w / (2.0 - w)))


def _lower_quantile(w: Float64s) -> Float64s:
    """-ln(-ln(w)) for 0 < w <= 1/2."""
    return -_ln(-_ln(w))


@lru_cache(maxsize=1)
def gumbel_table() -> tuple[Float32s, Float32s]:
    """Return (value at the lower end of each bin, slope per unit of place), indexed by bin.

    Bins that no magnitude falls into are zero. The value at a bin's upper end, `value + slope * 2^13`, is the next
    bin's value up to rounding. Do not write into the arrays: they are shared.
    """
    values = np.zeros(BIN_MASK + 1, np.float32)
    slopes = np.zeros(BIN_MASK + 1, np.float32)
    first = _MIN_EXPONENT * _BINS_PER_OCTAVE
    num_bins = (_MAX_EXPONENT - _MIN_EXPONENT) * _BINS_PER_OCTAVE
    edges = np.arange(first, first + num_bins + 1, dtype=np.int32) << BIN_SHIFT
    w = edges.view(np.float32).astype(np.float64) * 2.0**-32
    for start, quantile in (
        (first, _upper_quantile),
        (first + (1 << (31 - BIN_SHIFT)), _lower_quantile),
    ):
        at_edges = quantile(w).astype(np.float32)
        values[start : start + num_bins + 1] = at_edges
        slopes[start : start + num_bins] = np.diff(at_edges) * np.float32(2.0**-BIN_SHIFT)
    values.flags.writeable = False
    slopes.flags.writeable = False
    return values, slopes
