"""The table behind the noise: its accuracy, and that the noise never increases along the hash."""

from __future__ import annotations

import hashlib

import numpy as np

from outrider.actors.speculation.noise.gumbel_table import (
    BIN_MASK,
    BIN_SHIFT,
    PLACE_MASK,
    Float32s,
    Float64s,
    gumbel_table,
)


def all_bins() -> tuple[Float32s, Float32s]:
    """First magnitude of each bin that is used, and last one; positive sign."""
    first = np.arange(126 << 10, 158 << 10, dtype=np.int32) << BIN_SHIFT
    return first.view(np.float32), (first | PLACE_MASK).view(np.float32)


def interpolate(magnitudes: Float32s, *, negative: bool) -> Float32s:
    """The noise of signed magnitudes, as `noise.py` defines it."""
    bits = (np.negative(magnitudes) if negative else magnitudes).view(np.int32)
    bins = (bits >> BIN_SHIFT) & BIN_MASK
    values, slopes = gumbel_table()
    noise: Float32s = values[bins] + slopes[bins] * (bits & PLACE_MASK).astype(np.float32)
    return noise


def quantile(magnitudes: Float32s, *, negative: bool) -> Float64s:
    """The exact Gumbel quantile, by the platform's own logarithms."""
    w = magnitudes.astype(np.float64) * 2.0**-32
    return np.asarray(-np.log(-(np.log(w) if negative else np.log1p(-w))), dtype=np.float64)


def test_table_never_changes() -> None:
    """The bits of every value and slope, made again: the definition of the noise, the same on every platform."""
    digest = hashlib.sha256()
    for table in gumbel_table.__wrapped__():
        digest.update(table.astype("<f4").tobytes())
    assert digest.hexdigest() == "12fa998cc8f41c2c4f3476e7e78f605c05c11922544658704e2b908d3684ec04"


def test_noise_is_the_gumbel_quantile() -> None:
    """Off by at most 1.3e-7 and one unit in the last place, at ends and middle of every bin, on both sides."""
    for negative in (False, True):
        first, last = all_bins()
        middle = (first.view(np.int32) + 4096).view(np.float32)
        for magnitudes in (first, middle, last, np.array([2.0**31], dtype=np.float32)):
            exact = quantile(magnitudes, negative=negative)
            error = np.abs(interpolate(magnitudes, negative=negative) - exact)
            one_place = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
            assert (error <= 1.3e-7 + one_place).all()
            assert error[np.abs(exact) < 8].max() < 1e-6


def test_noise_never_increases_along_the_hash() -> None:
    """Within a bin and from each bin to the next, the noise falls (positive side) or rises (negative side)."""
    first, last = all_bins()
    for negative, sign in ((False, -1), (True, 1)):
        low, high = interpolate(first, negative=negative), interpolate(last, negative=negative)
        assert (sign * (high - low) >= 0).all()
        assert (sign * (low[1:] - high[:-1]) >= 0).all()
    top = np.array([2.0**31], dtype=np.float32)
    assert interpolate(top, negative=False) == interpolate(top, negative=True)


def test_unused_bins_are_zero() -> None:
    """Magnitudes are 0.5 to 2^31; nothing else is ever looked up."""
    values, slopes = gumbel_table()
    assert np.count_nonzero(slopes) == 2 * 32 * 1024
    assert np.count_nonzero(values) <= 2 * (32 * 1024 + 1)
