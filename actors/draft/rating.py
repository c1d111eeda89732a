"""Rates the rows that a pass has run, for the sessions whose length policy wants to know."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from outrider.actors.draft.halting import Halting
from outrider.actors.draft.lengths import Rater
from outrider.actors.draft.seat import Entry
from outrider.actors.draft.tree import ROOT


def rate_rows(expanded: Sequence[tuple[Entry, int]], logits_RV: torch.Tensor) -> None:
    """Takes the rows in, in their order, before children are added.

    Args:
        expanded: Nodes that were run, `ROOT` for the last committed token, each with its session's entry.
        logits_RV: Their logits, float32.
    """
    by_rater: dict[Rater, list[int]] = {}
    for row, (entry, _) in enumerate(expanded):
        if entry.seat.halting is not None:
            by_rater.setdefault(entry.seat.halting.policy.rater, []).append(row)
    for rater, rows in by_rater.items():
        scores = [_scores(*expanded[row], logits_RV[row]) for row in rows]
        for row, rating in zip(rows, rater(torch.stack(scores)), strict=True):
            entry, node = expanded[row]
            if entry.seat.halting is not None:
                _take(entry.seat.halting, entry, node, rating)


def _take(halting: Halting, entry: Entry, node: int, rating: float) -> None:
    if node == ROOT:
        halting.begin(rating)
        return
    tree = entry.session.tree
    parent = tree.parents[node]
    halting.add(ROOT if parent == ROOT else tree.scratch[parent], rating)


def _scores(entry: Entry, node: int, logits_V: torch.Tensor) -> torch.Tensor:
    """What tokens are ranked by: logits over temperature, with the noise of their position where the target adds it too."""
    session, noise = entry.session, entry.seat.rating_noise
    temperature = session.sampling.temperature
    if temperature > 0.0:
        logits_V = logits_V / temperature
    if noise is None:
        return logits_V
    depth = 0 if node == ROOT else session.tree.depths[node]
    return logits_V + noise.row_range(session.length, session.length + depth + 1)[depth]
