"""The order in which ways of decoding run by turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Way = TypeVar("Way")


def in_turn(ways: Sequence[Way], run: int) -> tuple[Way, ...]:
    """The ways, forwards in one run and backwards in the next.

    What ran right before changes the pace of what comes next - a machine that was idle is faster for a while than one that was
    busy - so in a fixed order one way would always follow the same other one.

    Args:
        ways: All of them.
        run: Number of the run, from 0.
    """
    return tuple(ways) if run % 2 == 0 else tuple(reversed(ways))
