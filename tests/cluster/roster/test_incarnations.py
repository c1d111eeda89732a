"""Incarnations rise."""

from __future__ import annotations

from outrider.cluster.roster.incarnations import Incarnations


def test_numbers_rise_when_the_clock_stands_still_or_is_set_back() -> None:
    """A restart within one tick, or after a correction of the clock, is still later."""
    readings = iter([100, 100, 50, 200])
    incarnations = Incarnations(lambda: next(readings))

    assert [incarnations.next() for _ in range(4)] == [100, 101, 102, 200]


def test_a_new_supervisor_goes_on_above_the_old_one() -> None:
    """Numbers come from the clock, so that they need no memory."""
    earlier = Incarnations().next()

    assert Incarnations().next() > earlier
