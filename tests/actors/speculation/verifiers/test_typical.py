"""Typical acceptance: its rule by hand. That it is lossy, the enumeration shows (test_exactness.py)."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.actors.speculation.sampling.random_acts import UniformDecisions
from outrider.actors.speculation.trees.draft_tree import DraftTree, sources_by_parent
from outrider.actors.speculation.verifiers.typical import typical

FLAT, SURE = np.array([0.3, 0.3, 0.2, 0.15, 0.05]), np.array([0.9, 0.06, 0.02, 0.01, 0.01])
WIDE, FEW = np.array([0.3, 0.3, 0.2, 0.12, 0.08]), np.array([0.88, 0.12, 0.0, 0.0, 0.0])


@pytest.mark.parametrize(
    ("row", "token", "stays"),
    [
        (FLAT, 3, True),  # entropy 1.45, threshold .3 * .235 = .07
        (FLAT, 4, False),
        (SURE, 0, True),  # entropy .43, threshold .09
        (SURE, 1, False),
        (WIDE, 4, True),  # entropy 1.5, threshold .3 * .223 = .067
        (FEW, 1, True),  # entropy .37, threshold .09 and not .3 * .69 = .21
        (FEW, 2, False),
    ],
)
def test_a_token_stays_above_the_threshold(row: np.ndarray, token: int, stays: bool) -> None:
    """Where the target is unsure, less is enough."""
    tree = DraftTree(tokens_N=(token,), parents_N=(-1,), sources_N=sources_by_parent((-1,)))
    outcome = typical(
        tree=tree, target_probs_NV=np.stack([row, row]), decisions=UniformDecisions(np.zeros(8))
    )

    assert outcome.path == ((0,) if stays else ())


def test_a_token_at_the_threshold_goes() -> None:
    """It must be likelier."""
    row = np.array([0.5, 0.25, 0.25])
    outcome = typical(
        tree=DraftTree(tokens_N=(1,), parents_N=(-1,), sources_N=sources_by_parent((-1,))),
        target_probs_NV=np.stack([row, row]),
        decisions=UniformDecisions(np.zeros(8)),
        epsilon=0.25,
        delta=1.0,
    )

    assert outcome.path == ()


def test_options_move_the_threshold() -> None:
    """With `epsilon` 0 everything possible stays."""
    tree = DraftTree(tokens_N=(4,), parents_N=(-1,), sources_N=sources_by_parent((-1,)))
    outcome = typical(
        tree=tree,
        target_probs_NV=np.stack([SURE, SURE]),
        decisions=UniformDecisions(np.zeros(8)),
        epsilon=0.0,
    )

    assert outcome.path == (0,)
