"""The clock of drafters' answers: it stands while a pass runs, if the device is shared."""

from __future__ import annotations

import pytest

from outrider.actors.target.schedule.drafting_clock import DraftingClock


@pytest.mark.parametrize(("is_shared", "passes"), [(False, 0.0), (True, 0.5)])
def test_passes_are_left_out(is_shared: bool, passes: float) -> None:
    """Also for what arrived while the last one ran."""
    clock = DraftingClock()
    clock.is_shared = is_shared
    assert clock.at(1.0) == 1.0
    clock.passed(1.0, 1.2)
    clock.passed(1.3, 1.6)
    assert clock.at(2.0) == pytest.approx(2.0 - passes)
    if is_shared:
        assert clock.at(1.4) == clock.at(1.3) == clock.at(1.6) == pytest.approx(1.1)
        assert clock.at(1.25) == pytest.approx(1.05)


def test_it_never_goes_back() -> None:
    """Neither when a drafter that shares the device joins nor when it leaves."""
    clock, last = DraftingClock(), 0.0
    for number in range(12):
        clock.is_shared = number % 3 > 0
        began = 0.1 * number
        clock.passed(began, began + 0.06)
        for now in (began + 0.06, began + 0.08, began + 0.1):
            assert clock.at(now) >= last - 1e-9
            last = clock.at(now)
