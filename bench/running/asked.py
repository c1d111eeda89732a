"""Which words the options of suites take. A suite names a check for each of its options in `CHOICES`; all are made before anything runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from bench.running.targets import SHIPPED

Check = Callable[[str], object]
"""Raises ValueError for a word that the suite cannot take."""


def among(names: Iterable[str]) -> Check:
    """Takes these names."""
    known = tuple(names)

    def check(word: str) -> None:
        if word not in known:
            raise ValueError(f"there is no {word!r}; choose among {', '.join(known)}")

    return check


def requests_at_once(word: str) -> None:
    """Takes whole numbers, at least 1."""
    if not word.isdecimal() or not int(word):
        raise ValueError(f"must be a whole number of requests, at least 1, but is {word!r}")


def milliseconds(name: str, *, is_positive: bool = False) -> Check:
    """Takes a name, or a number of milliseconds that is not negative.

    Args:
        name: What may stand there in place of a number.
        is_positive: The number is not 0 either.
    """

    def check(word: str) -> None:
        if word == name:
            return
        try:
            found = float(word)
        except ValueError:
            found = math.nan
        if not 0.0 <= found < math.inf or (is_positive and not found):
            least = "more than 0" if is_positive else "at least 0"
            raise ValueError(f"must be {name!r} or milliseconds, {least}, but is {word!r}")

    return check


target_cost = milliseconds(SHIPPED, is_positive=True)
"""Takes what `bench.running.targets.prepared` takes."""
