"""Shapes that passes are padded to."""

from __future__ import annotations

import random

import pytest

from outrider.actors.engine.graphs.static_shape import (
    MOST_PADDED,
    ROWS,
    Need,
    StaticShape,
    shape_of,
    usual_shapes,
)


def need(
    rows: int = 1, sessions: int = 1, longest: int = 1, slots: int = 1, shown: int = 1
) -> Need:
    """A need, small unless said otherwise."""
    return Need(rows=rows, sessions=sessions, longest=longest, slots=slots, shown=shown)


def test_a_shape_holds_what_it_was_made_for() -> None:
    """Whatever the pass, and it never exceeds the storage."""
    rng = random.Random(0)
    for _ in range(2000):
        num_slots, capacity = rng.randint(1, 70), rng.randint(2, 5000)
        sessions = rng.randint(1, num_slots)
        longest = rng.randint(1, 60)
        asked = need(
            rows=rng.randint(longest + sessions - 1, longest * sessions),
            sessions=sessions,
            longest=longest,
            slots=rng.randint(sessions, num_slots),
            shown=rng.randint(1, capacity),
        )
        shape = shape_of(asked, num_slots=num_slots, capacity=capacity)
        if shape is None:
            assert asked.rows > ROWS[-1] or 2 * sessions * 2 * longest > MOST_PADDED
            continue
        assert shape.holds(asked)
        assert shape.entries <= num_slots
        assert shape.shown <= capacity
        assert not shape.holds(need(rows=shape.rows + 1))
        assert not shape.holds(need(longest=shape.longest + 1))
        assert not shape.holds(need(shown=shape.shown + 1))
        too_many = shape.entries + 1
        assert not shape.holds(need(rows=too_many, sessions=too_many, slots=too_many))


def test_trees_of_usual_sizes_and_their_root_pad_little() -> None:
    """16, 32 and 64 nodes, with the root."""
    for nodes, rows in [(16, 24), (32, 48), (64, 96)]:
        shape = shape_of(need(rows=nodes + 1, longest=nodes + 1), num_slots=4, capacity=4096)
        assert shape is not None
        assert shape.rows == rows


@pytest.mark.parametrize(
    ("shown", "padded"),
    [(1, 256), (256, 256), (257, 384), (385, 512), (513, 768), (1400, 1536), (1600, 1700)],
)
def test_shown_rows_pad_to_half_as_much_again(shown: int, padded: int) -> None:
    """Up to the capacity."""
    shape = shape_of(need(shown=shown), num_slots=4, capacity=1700)
    assert shape is not None
    assert shape.shown == padded


def test_a_lone_session_in_a_high_slot_is_gathered() -> None:
    """Reading all slots below it would cost more."""
    low = shape_of(need(slots=2), num_slots=16, capacity=512)
    high = shape_of(need(slots=9), num_slots=16, capacity=512)
    assert low == StaticShape(rows=1, entries=2, longest=1, shown=256, by_slot=True)
    assert high == StaticShape(rows=1, entries=1, longest=1, shown=256, by_slot=False)
    assert low.holds(need(slots=2))
    assert not low.holds(need(slots=3))
    assert high.holds(need(slots=16))


def test_large_and_very_ragged_passes_have_no_shape() -> None:
    """Prompts, and one long tree beside many single rows."""
    most = ROWS[-1]
    assert shape_of(need(rows=most + 1, longest=most + 1), num_slots=4, capacity=512) is None
    ragged = need(rows=128, sessions=33, longest=96, slots=33)
    assert shape_of(ragged, num_slots=64, capacity=512) is None


@pytest.mark.parametrize("num_slots", [1, 3, 4, 64, 300])
def test_usual_shapes_hold_what_a_request_may_have_by_default(num_slots: int) -> None:
    """Trees of 32 candidates, a root of each session, and texts of any length that a cover takes."""
    shapes = usual_shapes(num_slots=num_slots, capacity=900)
    assert len(set(shapes)) == len(shapes) < 50
    for sessions in range(1, num_slots + 1):
        for nodes in (0, 3, 32):
            rows = sessions * (1 + nodes)
            padded = 1 << (sessions - 1).bit_length()
            if rows > ROWS[-1] or padded * (1 + nodes) > MOST_PADDED // 1.5:
                continue
            asked = need(rows=rows, sessions=sessions, longest=1 + nodes, slots=sessions, shown=60)
            assert any(shape.holds(asked) for shape in shapes), (sessions, nodes)
            assert all(shape.entries <= num_slots for shape in shapes)
