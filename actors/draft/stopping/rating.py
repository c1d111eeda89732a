"""Rates the rows that a pass has run, for the sessions whose length policy wants to know."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.stopping.halting import Halting
from outrider.actors.draft.stopping.lengths import Rater
from outrider.actors.draft.trees.forest import ROOT, Forest


def rate_rows(
    halting: Mapping[int, Halting],
    forest: Forest,
    rows_R: NDArray[np.int64],
    nodes_R: NDArray[np.int64],
    scores_RV: torch.Tensor,
) -> None:
    """Takes the rows in, in their order.

    Args:
        halting: Of the sessions that want to know, by row.
        forest: The trees.
        rows_R: Session of each row.
        nodes_R: Node that was run, or `ROOT` for the last committed token.
        scores_RV: What tokens are ranked by there, before options exclude any.
    """
    by_rater: dict[Rater, list[int]] = {}
    for index, row in enumerate(rows_R.tolist()):
        if row in halting:
            by_rater.setdefault(halting[row].policy.rater, []).append(index)
    for rater, indices in by_rater.items():
        ratings = rater(scores_RV[torch.tensor(indices, device=scores_RV.device)])
        for index, rating in zip(indices, ratings, strict=True):
            row, node = int(rows_R[index]), int(nodes_R[index])
            if node == ROOT:
                halting[row].begin(rating)
            else:
                parent = int(forest.parents_SM[row, node])
                halting[row].add(int(forest.scratch_SM[row, parent]), rating)
