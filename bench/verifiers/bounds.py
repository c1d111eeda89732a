"""A bound that no verifier passes over whole rounds, whatever it knows, from trees and the paths' probabilities.

If the path of d committed tokens is one of the tree's, it is in S or not all of the tree's paths of length d are, for any
set S of paths; so at most target(S) + 1 - Pr(all paths of the tree in S) rounds accept d candidates. Here S are the paths
whose ratio target / draft is at most t, with the best t of a grid for each depth, one for all contexts. On a chain the
best is t = 1, which gives the sum over d of 1 - total variation of d tokens: exact, though not attainable with rows along
the path only. On trees a threshold of its own for each context could be lower: it is a bound, not the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.speculation.sampling.random_acts import Float64s, ProbabilityRows

THRESHOLDS = np.append(2.0 ** np.arange(-4.0, 6.01, 0.25), np.inf)


def path_ratios(
    frozen: FrozenTree, places: Sequence[int], target_probs_UV: ProbabilityRows
) -> list[list[float]]:
    """Target over draft probability of every path, by depth.

    Args:
        frozen: A tree.
        places: Node of the union of trees for each of its nodes.
        target_probs_UV: Row 1 + u follows node u of the union, row 0 the context.
    """
    tree, ratios, depths = frozen.tree, [1.0], [0]
    by_depth: list[list[float]] = []
    for token, parent, source in zip(tree.tokens_N, tree.parents_N, tree.sources_N, strict=True):
        row_V = target_probs_UV[0 if parent < 0 else places[parent] + 1]
        ratios.append(ratios[parent + 1] * float(row_V[token]) / frozen.rows[source].prob(token))
        depths.append(depths[parent + 1] + 1)
        if len(by_depth) < depths[-1]:
            by_depth.append([])
        by_depth[depths[-1] - 1].append(ratios[-1])
    return by_depth


def target_within(ratios_P: Sequence[float]) -> Float64s:
    """Estimate of target(S) for each threshold, from paths that were each drawn from the draft."""
    ratios = np.array(ratios_P)[:, None]
    within: Float64s = np.where(ratios <= THRESHOLDS, ratios, 0.0).mean(axis=0)
    return within


def all_within(ratios_P: Sequence[float]) -> Float64s:
    """1 for each threshold that no path passes, else 0."""
    within: Float64s = (max(ratios_P, default=0.0) <= THRESHOLDS).astype(np.float64)
    return within


def bound(target_T: Float64s, all_T: Float64s) -> float:
    """The least bound on the share of rounds, from means over contexts."""
    return float(min(1.0, (target_T + 1.0 - all_T).min()))
