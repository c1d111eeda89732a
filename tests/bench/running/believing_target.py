"""A target with a mistake made on purpose, which lets a drafter into the text."""

from __future__ import annotations

from itertools import count

from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.verify.host_drawing import Family

EACH = 8
"""Candidates that were not drawn, of which one stays."""


def believe_drafters() -> None:
    """Now and then a candidate stays, though the target drew another token."""
    drawn = Family.next
    numbers = count(1)

    def believing(self: Family, places_A: Int64s, tokens_A: Int64s) -> Int64s:
        next_A = drawn(self, places_A, tokens_A)
        for entry in (next_A < 0).nonzero()[0].tolist():
            children = (self.parents_N == places_A[entry]).nonzero()[0]
            if len(children) and next(numbers) % EACH == 0:
                next_A[entry], tokens_A[entry] = children[0], self.tokens_N[children[0]]
        return next_A

    setattr(Family, "next", believing)  # noqa: B010 - an assignment to a method is no type
