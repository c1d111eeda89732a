"""Which rows of a session's growing tree are drafted on below: the ratings of its rows, kept in step with the engine's.

Rows are named as in the engine: by their place among the scratch rows, `ROOT` for the last committed token's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.stopping.lengths import LengthPolicy, Rater
from outrider.actors.draft.trees import forest
from outrider.actors.draft.trees.forest import Forest

ROOT = forest.NOT_RUN
"""Stands for the row of the last committed token, which is no scratch row."""


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


def rate_rows(
    halting: Mapping[int, Halting],
    trees: Forest,
    rows_R: NDArray[np.int64],
    nodes_R: NDArray[np.int64],
    scores_RV: torch.Tensor,
) -> None:
    """Takes the rows in, in their order.

    Args:
        halting: Of the sessions that want to know, by row.
        trees: The trees.
        rows_R: Session of each row.
        nodes_R: Node that was run, or `forest.ROOT` for the last committed token.
        scores_RV: What tokens are ranked by there, before options exclude any.
    """
    by_rater: dict[Rater, list[int]] = {}
    for index, row in enumerate(rows_R.tolist()):
        if row in halting:
            by_rater.setdefault(halting[row].policy.rater, []).append(index)
    for rater, indices in by_rater.items():
        ratings = rater(scores_RV[torch.tensor(indices, device=scores_RV.device)]).tolist()
        for index, rating in zip(indices, ratings, strict=True):
            row, node = int(rows_R[index]), int(nodes_R[index])
            if node == forest.ROOT:
                halting[row].begin(rating)
            else:
                parent = int(trees.parents_SM[row, node])
                halting[row].add(int(trees.scratch_SM[row, parent]), rating)
