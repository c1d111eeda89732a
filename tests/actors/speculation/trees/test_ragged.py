"""Groups of different sizes behind one another, against loops."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.speculation.trees.ragged import (
    cells_of,
    first_equals,
    ranges,
    rank_within,
    sizes_of,
    starts_of,
)

SIZES = [(), (0,), (1,), (3,), (1, 2), (2, 0, 1), (0, 4, 0, 1, 1, 0), (1, 1, 1), (1, 2, 2)]


@pytest.mark.parametrize("sizes", SIZES)
def test_starts_and_sizes_are_each_other_reversed(sizes: tuple[int, ...]) -> None:
    """Empty groups count."""
    counts = np.array(sizes, dtype=np.int64)
    starts = starts_of(counts)
    assert starts.tolist() == [sum(sizes[:end]) for end in range(len(sizes) + 1)]
    assert sizes_of(starts).tolist() == list(sizes)


@pytest.mark.parametrize("sizes", SIZES)
def test_ranges_begin_where_they_are_told(sizes: tuple[int, ...]) -> None:
    """And go on by one."""
    firsts = [7 * group + 3 for group in range(len(sizes))]
    expected = [first + n for first, size in zip(firsts, sizes, strict=True) for n in range(size)]
    found = ranges(np.array(firsts, dtype=np.int64), np.array(sizes, dtype=np.int64))
    assert found.tolist() == expected


@pytest.mark.parametrize("sizes", SIZES)
def test_ranks_begin_anew_in_each_group(sizes: tuple[int, ...]) -> None:
    """Whatever number a group has."""
    groups = [9 - number for number, size in enumerate(sizes) for _ in range(size)]
    expected = [rank for size in sizes for rank in range(size)]
    assert rank_within(np.array(groups, dtype=np.int64)).tolist() == expected


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (1, 1), (1, 7), (7, 1), (5, 6)])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_cells_are_those_of_nonzero(shape: tuple[int, int], share: float) -> None:
    """In the same order."""
    mask = np.random.default_rng(1).random(shape) < share
    rows, columns = cells_of(mask)
    expected = [(row, column) for row in range(shape[0]) for column in range(shape[1])]
    found = list(zip(rows.tolist(), columns.tolist(), strict=True))
    assert found == [cell for cell in expected if mask[cell]]


@pytest.mark.parametrize("size", [0, 1, 2, 50, 5_000])
@pytest.mark.parametrize("kinds", [1, 7, 2**63])
def test_equal_values_share_the_first_of_them(size: int, kinds: int) -> None:
    """Also where the sort that finds them keeps no order."""
    values = np.random.default_rng(2).integers(0, kinds, size).astype(np.uint64)
    known: dict[int, int] = {}
    expected = [known.setdefault(value, place) for place, value in enumerate(values.tolist())]
    assert first_equals(values).tolist() == expected
