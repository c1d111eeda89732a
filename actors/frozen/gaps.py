"""Rows of ascending token ids as bytes: the gaps between neighbours, seven bits a byte.

A gap is the number of ids left out before an id. Its bytes come least significant first; all but the last have the
highest bit set (LEB128). The denser a row, the more gaps fit one byte, and the less they vary, which a Huffman code
turns into bits. Pure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Uint32s = NDArray[np.uint32]

MAX_BYTES = 5
"""Bytes of a gap, at most."""

_BITS = 7
_PLACES = np.arange(MAX_BYTES)
_MORE = 1 << _BITS


def encode(ids_T: Uint32s, starts_R: Int64s) -> bytes:
    """The bytes of rows, one after the other.

    Args:
        ids_T: Ids of all rows, ascending within a row.
        starts_R: Place of the first id of each row; none is empty.
    """
    if not len(ids_T):
        return b""
    wide_T = ids_T.astype(np.int64)
    gaps_T = np.empty_like(wide_T)
    gaps_T[1:] = wide_T[1:] - wide_T[:-1] - 1
    gaps_T[starts_R] = wide_T[starts_R]
    if not (gaps_T >= _MORE).any():
        return gaps_T.astype(np.uint8).tobytes()
    parts_TB = gaps_T[:, None] >> (_BITS * _PLACES)
    is_last_TB = parts_TB < _MORE
    is_used_TB = is_last_TB.argmax(axis=1)[:, None] >= _PLACES
    bytes_TB = (parts_TB % _MORE) + np.where(is_last_TB, 0, _MORE)
    packed: bytes = bytes_TB[is_used_TB].astype(np.uint8).tobytes()
    return packed


def decode(data: bytes, starts_R: Int64s, total: int, vocab_size: int) -> Uint32s:
    """The ids of all rows, in order.

    Args:
        data: The bytes of all rows, one after the other.
        starts_R: Place of the first id of each row; none is empty.
        total: Ids in all.
        vocab_size: Ids must be below.

    Raises:
        ValueError: The bytes are not those of so many ids, or one is not below `vocab_size`.
    """
    if not total:
        if data:
            raise ValueError(f"{len(data)} bytes for no tokens")
        return np.zeros(0, np.uint32)
    bytes_B = np.frombuffer(data, np.uint8)
    ends = (bytes_B < _MORE).nonzero()[0]
    if len(ends) != total or ends[-1] != len(bytes_B) - 1:
        raise ValueError(f"{len(data)} bytes that are not {total} gaps")
    gaps_T = bytes_B.astype(np.int64)
    if len(bytes_B) > total:
        starts = np.concatenate(([0], ends[:-1] + 1))
        lengths = ends - starts + 1
        if lengths.max() > MAX_BYTES:
            raise ValueError(f"a gap of {lengths.max()} bytes; at most {MAX_BYTES}")
        places_B = np.arange(len(bytes_B)) - starts.repeat(lengths)
        gaps_T = np.add.reduceat(gaps_T % _MORE << (_BITS * places_B), starts)
    # Of all rows together first; what the rows before have added up to is taken off again.
    ids_T = (gaps_T + 1).cumsum() - 1
    before_R = ids_T[starts_R] - gaps_T[starts_R]
    counts_R = np.diff(starts_R, append=total)
    ids_T -= before_R.repeat(counts_R)
    greatest = int(ids_T.max())
    if greatest >= vocab_size:
        raise ValueError(f"id {greatest}; the vocabulary has ids below {vocab_size}")
    return ids_T.astype(np.uint32)
