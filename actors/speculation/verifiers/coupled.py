"""Coupled verification in the common signature: exact match whose draws come from shared Gumbel noise.

Source: Daliri, Musco, Suresh 2024, arXiv 2408.07978; the rule itself is `actors/speculation/verify/coupled_draws.py`, which the
target calls directly. Here it stands beside the other methods for comparisons and proofs.

Guarantee: the output is, token for token, what plain decoding draws with the same noise, for any tree, even one that
was grown with knowledge of that noise.

Edge cases: as for exact match. Without noise the draw is the argmax, of equal ones the least token id.
"""

from __future__ import annotations

import numpy as np

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s, ProbabilityRows
from outrider.actors.speculation.trees.draft_tree import DraftTree
from outrider.actors.speculation.verifiers.exact_match import exact_match
from outrider.actors.speculation.verify.acceptance import Acceptance
from outrider.actors.speculation.verify.verifier_spec import TreeGrowth, VerifierSpec


class CoupledDecisions:
    """Draws by argmax(log weight + noise), the row of noise of each draw being that of its position."""

    def __init__(self, noise_DV: Float64s | None) -> None:
        """Take the noise of the positions after the committed text, in order; None draws the argmax."""
        self._noise_DV = noise_DV
        self._depth = 0

    def accept(self, probability: float) -> bool:
        """Not part of the coupled rule."""
        raise TypeError("the coupled rule takes no chances, it only draws")

    def draw(self, weights_V: Float64s) -> int:
        """The draw at the next position."""
        noise_DV, depth = self._noise_DV, self._depth
        self._depth += 1
        if noise_DV is None:
            return int(weights_V.argmax())
        with np.errstate(divide="ignore"):
            return int((np.log(weights_V) + noise_DV[depth]).argmax())


def coupled(
    *,
    tree: DraftTree,
    target_probs_NV: ProbabilityRows,
    draft_probs_RV: ProbabilityRows | None = None,
    decisions: Decisions,
) -> Acceptance:
    """Follow the target's draws; `decisions` are `CoupledDecisions`. Arguments: `acceptance.Verify`."""
    return exact_match(tree=tree, target_probs_NV=target_probs_NV, decisions=decisions)


SPECS = (
    VerifierSpec(
        name="coupled",
        verify=coupled,
        summary="the default: any tree, the text of plain decoding",
        source="Daliri, Musco, Suresh 2024, arXiv 2408.07978",
        growth=TreeGrowth.ANYTHING,
        needs_frozen_tree=False,
        mixes_drafters=True,
        shares_noise=True,
    ),
)
