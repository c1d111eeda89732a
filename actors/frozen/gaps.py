"""Rows of ascending token ids as bytes: the gaps between neighbours, seven bits a byte.

A gap is the number of ids left out before an id. Its bytes come least significant first; all but the last have the
highest bit set (LEB128). The denser a row, the more gaps fit one byte, and the less they vary, which a Huffman code
turns into bits. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Uint32s = NDArray[np.uint32]

MAX_BYTES = 5
"""Bytes of a gap, at most."""

_BITS = 7
_PLACES = np.arange(MAX_BYTES)
_MORE = 1 << _BITS


def encode(rows: Sequence[Uint32s]) -> bytes:
    """The bytes of rows, one after the other; none is empty."""
    if not rows:
        return b""
    ids_T = np.concatenate(rows).astype(np.int64)
    gaps_T = np.empty_like(ids_T)
    gaps_T[1:] = ids_T[1:] - ids_T[:-1] - 1
    starts = np.cumsum([0, *(len(ids_K) for ids_K in rows[:-1])])
    gaps_T[starts] = ids_T[starts]
    if not (gaps_T >= _MORE).any():
        return gaps_T.astype(np.uint8).tobytes()
    parts_TB = gaps_T[:, None] >> (_BITS * _PLACES)
    is_last_TB = parts_TB < _MORE
    is_used_TB = is_last_TB.argmax(axis=1)[:, None] >= _PLACES
    bytes_TB = (parts_TB % _MORE) + np.where(is_last_TB, 0, _MORE)
    packed: bytes = bytes_TB[is_used_TB].astype(np.uint8).tobytes()
    return packed


def decode(data: bytes, counts: Sequence[int], vocab_size: int) -> list[Uint32s]:
    """The rows, in order.

    Args:
        data: The bytes of all rows, one after the other.
        counts: Tokens of each row, at least 1.
        vocab_size: Ids must be below.

    Raises:
        ValueError: The bytes are not those of so many ids, or one is not below `vocab_size`.
    """
    total = sum(counts)
    if not total:
        if data:
            raise ValueError(f"{len(data)} bytes for no tokens")
        return []
    parts_B = np.frombuffer(data, np.uint8).astype(np.int64)
    ends = np.flatnonzero(parts_B < _MORE)
    if len(ends) != total or ends[-1] != len(parts_B) - 1:
        raise ValueError(f"{len(data)} bytes that are not {total} gaps")
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts + 1
    if lengths.max() > MAX_BYTES:
        raise ValueError(f"a gap of {lengths.max()} bytes; at most {MAX_BYTES}")
    places_B = np.arange(len(parts_B)) - np.repeat(starts, lengths)
    gaps_T = np.add.reduceat(parts_B % _MORE << (_BITS * places_B), starts)
    rows = [
        np.cumsum(gaps_K + 1) - 1 for gaps_K in np.split(gaps_T, np.cumsum(counts)[:-1].tolist())
    ]
    greatest = max(int(ids_K[-1]) for ids_K in rows)
    if greatest >= vocab_size:
        raise ValueError(f"id {greatest}; the vocabulary has ids below {vocab_size}")
    return [ids_K.astype(np.uint32) for ids_K in rows]
