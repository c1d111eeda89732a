"""Ascending ids survive the bytes, and what is not such bytes is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.frozen.gaps import decode, encode
from outrider.actors.speculation.trees.ragged import starts_of

IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40, unique=True).map(sorted)


@given(st.lists(IDS | st.just(list(range(200))), max_size=5))
def test_rows_survive(rows: list[list[int]]) -> None:
    """Any ids of 32 bits, rows of any length, neighbours or far apart."""
    starts_R = starts_of(np.array([len(ids) for ids in rows], np.int64))
    ids_T = np.array([token for ids in rows for token in ids], np.uint32)
    data = encode(ids_T, starts_R[:-1])
    got_T = decode(data, starts_R[:-1], len(ids_T), 2**32)
    assert got_T.tolist() == ids_T.tolist()
    assert got_T.dtype == np.uint32


def test_neighbours_take_a_byte_each() -> None:
    """And a gap of 128 two."""
    first = np.array([0])
    assert encode(np.arange(50, dtype=np.uint32), first) == bytes(50)
    assert encode(np.array([127, 256], np.uint32), first) == bytes([127, 128, 1])


@pytest.mark.parametrize(
    ("data", "counts", "message"),
    [
        (b"", [1], "0 bytes"),
        (b"\x01", [], "1 bytes for no tokens"),
        (b"\x01", [2], "not 2 gaps"),
        (b"\x01\x02", [1], "not 1 gaps"),
        (b"\x80", [1], "not 1 gaps"),
        (b"\x80\x80\x80\x80\x80\x00", [1], "a gap of 6 bytes"),
        (b"\x09", [1], "id 9; the vocabulary has ids below 9"),
    ],
)
def test_other_bytes_are_refused(data: bytes, counts: list[int], message: str) -> None:
    """With what is wrong."""
    with pytest.raises(ValueError, match=message):
        decode(data, starts_of(np.array(counts, np.int64))[:-1], sum(counts), 9)
