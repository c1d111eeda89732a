"""A target with a mistake made on purpose, which lets a drafter into the text."""

from __future__ import annotations

from itertools import count

from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.target.verify.host_drawing import Family, Float32s

EACH = 8
"""Candidates that were not drawn, of which one stays."""


def believe_drafters() -> None:
    """Now and then a candidate stays, though the target drew another token."""
    draw = Family.draw
    numbers = count(1)

    def believing(self: Family, places_A: Int64s, tokens_A: Int64s, margins_A: Float32s) -> None:
        draw(self, places_A, tokens_A, margins_A)
        if not len(self.tokens_N):
            return
        for place in places_A[self.nexts_P[places_A] == self.end].tolist():
            children = ((self.parents_N == place) & self.is_within_N).nonzero()[0]
            if len(children) and next(numbers) % EACH == 0:
                child = int(children[0])
                self.nexts_P[place], self.drawn_P[place] = child, self.tokens_N[child]

    setattr(Family, "draw", believing)  # noqa: B010 - an assignment to a method is no type
