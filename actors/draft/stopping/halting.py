"""Which rows of a session's growing tree are drafted on below: the ratings of its rows, kept in step with the engine's.

Pure. Rows are named as in the engine: by their place among the scratch rows, `ROOT` for the last committed token's.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.draft.stopping.lengths import LengthPolicy
from outrider.actors.draft.trees.frozen_rounds import ROOT


class Halting:
    """Ratings of the rows that were run, and what the policy says of each."""

    def __init__(self, policy: LengthPolicy) -> None:
        self.policy = policy
        self.clear()

    def clear(self) -> None:
        """Forgets everything: the root is not run."""
        self._ratings: list[float] = []
        self._parents: list[int] = []
        self._sums: list[float] = []
        self._depths: list[int] = []
        self._goes_on: list[bool] = []
        self._root = 1.0
        self._root_goes_on = True

    def begin(self, rating: float) -> None:
        """Takes the rating of the root's row; no other row is there."""
        self.clear()
        self._root = rating
        self._root_goes_on = self.policy.goes_on(depth=1, mean=rating, last=rating)

    def add(self, parent: int, rating: float) -> None:
        """Takes the rating of the next scratch row.

        Args:
            parent: Scratch row of its parent, or `ROOT`.
            rating: Of the row.
        """
        total = rating + (self._root if parent == ROOT else self._sums[parent])
        # A candidate of the row is as deep as there are rows on its path, the root's included.
        depth = 2 if parent == ROOT else self._depths[parent] + 1
        self._ratings.append(rating)
        self._parents.append(parent)
        self._sums.append(total)
        self._depths.append(depth)
        self._goes_on.append(self.policy.goes_on(depth=depth, mean=total / depth, last=rating))

    def goes_on(self, row: int) -> bool:
        """Whether candidates of this row may be run."""
        return self._root_goes_on if row == ROOT else self._goes_on[row]

    def reroot(self, row: int, keep: Sequence[int]) -> None:
        """Makes a scratch row the root, and keeps these below it, which are renumbered 0, 1, ...

        Args:
            row: The new root.
            keep: Ascending; each the child of the new root or of another kept row.
        """
        ratings, parents = self._ratings, self._parents
        place = {row: ROOT, **{old: new for new, old in enumerate(keep)}}
        self.begin(ratings[row])
        for old in keep:
            self.add(place[parents[old]], ratings[old])
