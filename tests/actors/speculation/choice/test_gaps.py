"""Ascending ids survive the bytes, and what is not such bytes is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.frozen.gaps import decode, encode

IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40, unique=True).map(sorted)


@given(st.lists(IDS | st.just(list(range(200))), max_size=5))
def test_rows_survive(rows: list[list[int]]) -> None:
    """Any ids of 32 bits, rows of any length, neighbours or far apart."""
    data = encode([np.array(ids, np.uint32) for ids in rows])
    got = decode(data, [len(ids) for ids in rows], 2**32)
    assert [ids.tolist() for ids in got] == rows
    assert all(ids.dtype == np.uint32 for ids in got)


def test_neighbours_take_a_byte_each() -> None:
    """And a gap of 128 two."""
    assert encode([np.arange(50, dtype=np.uint32)]) == bytes(50)
    assert encode([np.array([127, 256], np.uint32)]) == bytes([127, 128, 1])


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
        decode(data, counts, 9)
