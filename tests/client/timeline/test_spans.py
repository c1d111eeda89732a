"""Arithmetic with times."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.timeline.build import slice_

from outrider.client.timeline.intervals import (
    common,
    merged,
    partition,
    spans,
    total_us,
    without,
)

TIMES = st.lists(
    st.tuples(st.integers(-50, 150), st.integers(0, 60)).map(lambda t: (t[0], t[0] + t[1]))
)


def inside(times: list[tuple[float, float]], moment: float) -> bool:
    """Whether a moment is in some span."""
    return any(start <= moment < end for start, end in times)


@given(TIMES, TIMES)
def test_common_and_without_by_every_moment(
    one: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:
    """Both agree with asking at each moment."""
    a, b = merged(one), merged(other)
    both, rest = common(a, b), without(a, b)
    for tick in range(-51, 212):
        moment = tick + 0.5
        assert inside(both, moment) == (inside(one, moment) and inside(other, moment))
        assert inside(rest, moment) == (inside(one, moment) and not inside(other, moment))


@given(st.lists(st.tuples(st.sampled_from("abc"), TIMES)))
def test_every_moment_belongs_to_one_cause(
    layers: list[tuple[str, list[tuple[float, float]]]],
) -> None:
    """Whatever overlaps, the parts add up to the whole, and none is negative."""
    shares = partition(0.0, 100.0, layers, rest="rest")
    assert sum(shares.values()) == pytest.approx(100.0)
    assert all(share >= 0 for share in shares.values())


def test_the_first_layer_wins() -> None:
    """What an earlier layer holds, a later one does not get; the rest has the rest."""
    shares = partition(0, 10, [("a", [(2, 4)]), ("b", [(3, 6), (9, 20)])], rest="c")
    assert shares == {"a": 2, "b": 3, "c": 5}
    assert partition(5, 5, [("a", [(0, 9)])], rest="c") == {"a": 0, "c": 0}


def test_spans_are_merged() -> None:
    """Overlapping and touching slices are one span; instants are none."""
    found = spans([slice_(20, 5), slice_(0, 10), slice_(5, 10), slice_(15, 1), slice_(40, 0)])
    assert found == [(0, 16), (20, 25)]
    assert total_us(found) == 21
