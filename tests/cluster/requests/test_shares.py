"""What a coordinator may take where there are several."""

from __future__ import annotations

import pytest

from outrider.cluster.requests.slot_queue import allowance, share


@pytest.mark.parametrize(
    ("coordinators", "held", "contended", "expected"),
    [
        (1, 0, False, 8),
        (2, 0, False, 8),
        (2, 3, False, 5),
        (2, 8, False, 4),
        (2, 0, True, 4),
        (3, 1, True, 3),
        (20, 8, True, 1),
    ],
)
def test_what_others_leave_or_an_equal_share(
    coordinators: int, held: int, contended: bool, expected: int
) -> None:
    """One with all the work may have all; with contention everyone has its share, and at least one."""
    assert (
        allowance(8, coordinators=coordinators, held_by_others=held, is_contended=contended)
        == expected
    )


def test_shares_cover_the_whole() -> None:
    """Rounded up, so nothing is lost."""
    assert all(n * share(whole, n) >= whole for n in range(1, 9) for whole in range(65))
    assert share(64, 0) == 64
