"""Moving and copying rows of keys and values."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.actors.engine.kv.moved_rows import MovedRows
from outrider.actors.engine.kv.storage import PlaneShape, Storage

NARROW = PlaneShape(num_heads=2, head_dim=3)
WIDE = PlaneShape(num_heads=1, head_dim=5)
CPU = torch.device("cpu")


def numbered() -> Storage:
    """Two layers, the second with values of another shape; each row holds its slot and number."""
    held = Storage(
        [(NARROW, NARROW), (NARROW, WIDE)],
        num_slots=2,
        capacity=8,
        dtype=torch.float32,
        device=CPU,
    )
    for tensor in [*held.keys, *held.values]:
        for slot in range(2):
            for row in range(8):
                tensor[slot, row] = 100 * slot + row
    return held


def rows(held: Storage, slot: int) -> list[int]:
    """What the rows of a slot hold, the same in every plane and head."""
    planes = [*held.keys, *held.values]
    contents = {tuple(plane[slot, :, 0, 0].int().tolist()) for plane in planes}
    assert len(contents) == 1
    assert all((plane == plane[..., :1, :1]).all() for plane in planes)
    return list(contents.pop())


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(0, 5)), st.integers(0, 2))
def test_move_compacts_rows(kept: set[int], first: int) -> None:
    """Kept rows follow one another in order, in all planes; other slots and earlier rows stay."""
    held = numbered()
    sources = np.array(sorted(kept), np.int64)
    moved = MovedRows(
        slots_N=np.ones(len(kept), np.int64),
        sources_N=first + sources,
        targets_N=first + np.arange(len(kept)),
    )
    held.move(moved)
    assert [100 + row for row in range(first)] == rows(held, 1)[:first]
    assert [100 + first + row for row in sorted(kept)] == rows(held, 1)[first : first + len(kept)]
    assert list(range(8)) == rows(held, 0)


def test_copy() -> None:
    """The first rows of a slot appear in another, and only those."""
    held = numbered()
    held.copy(0, 1, 3)
    assert rows(held, 1) == [0, 1, 2, 103, 104, 105, 106, 107]
    assert list(range(8)) == rows(held, 0)


def test_views_are_of_the_same_memory() -> None:
    """What is written through one view is read through the others."""
    held = numbered()
    held.flat_values[1][8 + 2] = -1.0
    assert held.values[1][1, 2, 0, 4].item() == -1.0
    assert held.views(1, 1, 1, 3).values[1][0, 0, 1, 4].item() == -1.0


def test_memory_is_taken_when_it_is_written() -> None:
    """All rows start as zeros, and those that nobody writes cost nothing: a gigabyte of slots, hardly any memory."""
    before = resident_bytes()
    shape = PlaneShape(num_heads=2, head_dim=32)
    held = Storage([(shape, shape)], num_slots=64, capacity=65536, dtype=torch.bfloat16, device=CPU)
    assert held.keys[0].dtype == torch.bfloat16
    assert not held.keys[0][63, -1].any()
    assert resident_bytes() - before < 2**27


def test_a_first_row_takes_little_memory() -> None:
    """A row of each of 64 planes takes a page of each, not two megabytes of each, which the system would have to clear first."""
    shape = PlaneShape(num_heads=2, head_dim=32)
    held = Storage(
        [(shape, shape)] * 32, num_slots=4, capacity=8192, dtype=torch.float32, device=CPU
    )
    before = resident_bytes()
    for tensor in [*held.keys, *held.values]:
        tensor[2, 5] = 1.0
    assert resident_bytes() - before < 2**24


def resident_bytes() -> int:
    """Memory that this process has."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("the system does not tell how much memory is used")
    return int(statm.read_text().split()[1]) * resource.getpagesize()


def test_views_of_neighbouring_slots() -> None:
    """The same rows of several slots, without a copy."""
    held = numbered()
    views = held.views(0, 2, 3, 4)
    keys, values = views.keys, views.values
    assert keys[1].shape == (2, 2, 4, 3)
    assert values[1].shape == (2, 1, 4, 5)
    assert values[1][1, 0, :, 0].tolist() == [103, 104, 105, 106]
    values[1][1, 0, 2, 0] = -1.0
    assert held.values[1][1, 5, 0, 0].item() == -1.0


def test_clear_up_to_a_row() -> None:
    """Only the rows asked for, of only that slot."""
    held = numbered()
    held.clear(1, 2, 4)
    assert rows(held, 1) == [100, 101, 0, 0, 104, 105, 106, 107]
    held.clear(1, 6)
    assert rows(held, 1)[4:] == [104, 105, 0, 0]
    assert rows(held, 0) == list(range(8))
