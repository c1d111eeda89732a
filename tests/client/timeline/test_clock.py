"""Comparing clocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.client.timeline.clock import WINDOW_NS, ClockOffset, ClockReading


def asked(
    at_ns: int, ahead_ns: int, there_ns: int, back_ns: int, thinks_ns: int = 1000
) -> ClockReading:
    """A reading of a clock that is ahead, over ways of these lengths."""
    received = at_ns + there_ns + ahead_ns
    return ClockReading(
        asked_ns=at_ns,
        received_ns=received,
        answered_ns=received + thinks_ns,
        returned_ns=at_ns + there_ns + thinks_ns + back_ns,
    )


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=9),
)
def test_error_holds(ahead_ns: int, ways: list[tuple[int, int]]) -> None:
    """However unequal the ways there and back, the true offset lies within the error that is stated."""
    clock = ClockOffset(
        asked(10**6 * n, ahead_ns, there, back) for n, (there, back) in enumerate(ways)
    )
    assert clock.error_ns is not None
    assert abs(clock.offset_ns - ahead_ns) <= clock.error_ns + 1
    assert clock.error_ns <= min(there + back for there, back in ways) / 2


def test_the_quickest_reading_counts() -> None:
    """One quick answer among slow ones decides."""
    clock = ClockOffset(
        [asked(0, 500, 9000, 1000), asked(100, 500, 10, 10), asked(200, 500, 0, 9000)]
    )
    assert clock.offset_ns == 500
    assert clock.error_ns == 10
    assert clock.to_ours(1500) == 1000


def test_drift_is_followed() -> None:
    """Between readings the offset changes evenly; before the first and after the last it stays."""
    first, second = asked(0, 1000, 0, 0, 0), asked(2 * WINDOW_NS, 3000, 0, 0, 0)
    clock = ClockOffset([first, second])
    middle = (first.received_ns + second.received_ns) / 2
    assert clock.to_ours(middle) == pytest.approx(middle - 2000)
    assert clock.to_ours(first.received_ns - 10) == first.received_ns - 10 - 1000
    assert clock.to_ours(second.received_ns + 10) == second.received_ns + 10 - 3000


def test_without_a_reading_it_is_taken_for_ours() -> None:
    """And nobody knows how wrong that is."""
    clock = ClockOffset([])
    assert clock.to_ours(123) == 123
    assert clock.error_ns is None
