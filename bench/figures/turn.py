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


def balanced(ways: Sequence[Way], turn: int) -> tuple[Way, ...]:
    """The ways in an order in which, over the turns, each follows each other one equally often.

    For turns so short that all of them can be run: as many as there are ways, twice as many if their number is odd.
    (Williams 1949, "Experimental designs balanced for the estimation of residual effects of treatments".)

    Args:
        ways: All of them.
        turn: Number of the turn, from 0.
    """
    count = len(ways)
    zigzag = [
        (place + 1) // 2 if place % 2 else (count - place // 2) % count for place in range(count)
    ]
    order = tuple(ways[(place + turn) % count] for place in zigzag)
    return order[::-1] if count % 2 and turn // count % 2 else order
