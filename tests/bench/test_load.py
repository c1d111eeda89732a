"""The lengths of answers in `bench load`."""

from __future__ import annotations

from collections import Counter

import pytest

from bench.suites.service.load_suite import lengths_of


@pytest.mark.parametrize("count", [16, 64, 256])
def test_mixed_lengths_have_the_mean_of_equal_ones(count: int) -> None:
    """So either kind asks for as many tokens; no length stands for many requests, and the order is the same each time."""
    equal, mixed = (lengths_of(kind, count, 48) for kind in ("equal", "mixed"))

    assert set(equal) == {48}
    assert sum(mixed) == sum(equal)
    assert (min(mixed), max(mixed)) == (16, 80)
    assert max(Counter(mixed).values()) <= max(count // 64, 1)
    assert mixed != sorted(mixed)
    assert mixed == lengths_of("mixed", count, 48)
