"""Drafts that carry the rows that their tokens are said to be drawn from, where these are not a function of the prefix."""

from __future__ import annotations

from dataclasses import dataclass

from tests.actors.speculation.trees.branches import Draft, Models

from outrider.actors.speculation.sampling.random_acts import Float64s


@dataclass(frozen=True, eq=False)
class ToldDraft(Draft):
    """A tree with the rows that are sent with it."""

    told: tuple[Float64s, ...] = ()
    """Dense, in the order of the sources."""

    def rows(self, models: Models) -> list[Float64s]:
        """As they are told."""
        return list(self.told)
