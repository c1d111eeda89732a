"""How good a diffusion drafter's candidates are, learned from verdicts by distance from the last known token."""

from __future__ import annotations

import numpy as np

from outrider.actors.draft.diffusion.denoising import DistanceRates
from outrider.actors.draft.diffusion.diffusion_config import DiffusionConfig
from outrider.actors.draft.trees.calibration import PRIORS, Rates
from outrider.actors.draft.trees.forest import Forest, Int64s, TreeWalk

UNMEASURED = 0.5
"""Rate of a token before anything is observed, where the trainer measured nothing."""


class LearnedRates:
    """For each way of scoring: how often a token is the likeliest candidate, and how often one of them, given that those before it were right."""

    def __init__(self, config: DiffusionConfig) -> None:
        """Begins with what was measured of a net of this shape."""
        self._block = config.block
        unmeasured = (UNMEASURED,) * config.block
        self._first, self._among = (
            Rates(np.tile(np.array(rates or unmeasured), len(PRIORS)))
            for rates in (config.first, config.among)
        )

    def of(self, scoring: int) -> DistanceRates:
        """What is known by now of candidates that are scored so (`calibration.Scoring`)."""
        some = slice(scoring * self._block, (scoring + 1) * self._block)
        first, among = self._first.estimates[some], self._among.estimates[some]
        return DistanceRates(first.tolist(), among.tolist())

    def learn(self, forest: Forest, rows_E: Int64s, walk: TreeWalk, scorings_E: Int64s) -> None:
        """Takes in which candidates of the tokens that were reached were right, before the trees follow.

        Args:
            forest: The trees. Levels of confidence are distances, and the likeliest of siblings was added first.
            rows_E: Sessions.
            walk: The way of the committed tokens.
            scorings_E: How the candidates of each session were scored.
        """
        places_K = forest.places(rows_E[walk.entries_K], walk.nodes_K)
        features_K = forest.features_SM.take(places_K)
        scored = (features_K <= 0).nonzero()[0]
        families = walk.entries_K[scored] * walk.path_ET.shape[1] + walk.steps_K[scored]
        _, firsts, of = np.unique(families, return_index=True, return_inverse=True)
        likeliest = scored[firsts]
        kinds = scorings_E[walk.entries_K[likeliest]] * self._block
        kinds = kinds - features_K[likeliest].astype(np.int64)
        self._first.learn(kinds, walk.hits_K[likeliest])
        hits = np.bincount(of, walk.hits_K[scored], minlength=len(firsts)) > 0
        self._among.learn(kinds, hits)
