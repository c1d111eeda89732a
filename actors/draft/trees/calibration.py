"""How likely a candidate is to be the target's draw, learned while serving. Pure.

Candidates that a model has scored: `softmax(sharpness x score)` over the vocabulary, where the score is the logit over the temperature,
with the noise that the target adds too if it does. A draft probability alone is a poor estimate for a candidate picked
with shared noise; one number, the *sharpness*, makes it a good one, and is fitted for each way of scoring. Candidates without a
score (the target's own roots, tokens copied from earlier text) have match rates by what is known of them.

Each time the target commits a token below a node that has children, every child is one observation: it was that token, or not.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.trees.forest import Forest, Int64s, TreeWalk
from outrider.actors.speculation import learning
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling

LEAST, MOST = 0.002, 0.995
"""Bounds of estimates: no draw is certain, and none of a candidate's is excluded."""


class Scoring(IntEnum):
    """How candidates were scored."""

    GREEDY = 0
    """Logits alone, at temperature 0."""

    COUPLED = 1
    """Logits plus the noise that the target adds too."""

    BLIND = 2
    """Logits alone, while the target samples."""


def scoring_of(sampling: Sampling, verifier: str) -> Scoring:
    """How candidates of a session are scored."""
    if sampling.temperature <= 0.0:
        return Scoring.GREEDY
    return Scoring.COUPLED if VERIFIERS[verifier].shares_noise else Scoring.BLIND


PRIORS = (1.5, 1.5, 1.0)
"""Sharpness by scoring before anything is observed. With shared noise 1.5 fits a drafter whose log-probabilities err by about one
(`softmax(kappa (log q + g))`); without noise the draft's own law is the natural guess."""


class Sharpness:
    """The sharpness of each way of scoring, by natural-gradient steps on the logarithm of the drawn tokens' estimates.

    A model that says how sure it is has one for each of its *levels* of confidence, from 0 on.
    """

    def __init__(self, num_levels: int) -> None:
        """
        Args:
            num_levels: Levels of confidence that the model tells apart.
        """
        self.values = np.tile(PRIORS, num_levels)
        self._information = np.full(len(self.values), learning.PRIOR_DRAWS)

    def of(self, scorings_R: Int64s, levels_R: Int64s | int = 0) -> NDArray[np.float64]:
        """The sharpness of rows."""
        values_R: NDArray[np.float64] = self.values[_classes(scorings_R, levels_R)]
        return values_R

    def learn(
        self,
        *,
        families_K: Int64s,
        scorings_K: Int64s,
        estimates_K: NDArray[np.float32],
        slopes_K: NDArray[np.float32],
        hits_K: NDArray[np.bool_],
    ) -> None:
        """Takes in children of nodes that were reached.

        With d the slope of a child, dp/dsharpness = p d. The token was one of the children, or something else, whose probability is
        what the children leave.

        Args:
            families_K: A number for each parent.
            scorings_K: How the children were scored, with the level; siblings alike.
            estimates_K: Their estimates p.
            slopes_K: Their slopes.
            hits_K: Whether each was drawn.
        """
        if not len(families_K):
            return
        p_K, d_K = estimates_K.astype(np.float64), slopes_K.astype(np.float64)
        sums_F = np.bincount(families_K, p_K)
        # A number that is no family's has no children, and adds nothing.
        rest_F = np.maximum(1.0 - sums_F, 1.0 - MOST)
        moved_F = np.bincount(families_K, p_K * d_K)
        is_hit_F = np.bincount(families_K, hits_K) > 0
        slope_F = np.where(is_hit_F, np.bincount(families_K, d_K * hits_K), -moved_F / rest_F)
        information_F = np.bincount(families_K, p_K * d_K * d_K) + moved_F**2 / rest_F
        scorings_F = np.zeros(len(rest_F), np.int64)
        scorings_F[families_K] = scorings_K
        num = len(self.values)
        drawn = np.bincount(scorings_F, sums_F > 0.0, minlength=num)
        self._information *= learning.DRAWS**drawn
        self._information += np.bincount(scorings_F, information_F, minlength=num)
        # Forgotten as a whole, what is known never falls below what the prior knew.
        known = np.maximum(self._information, learning.PRIOR_DRAWS)
        moved = self.values + np.bincount(scorings_F, slope_F, minlength=num) / known
        self.values = np.minimum(np.maximum(moved, 0.5 * self.values), 2.0 * self.values)


class Rates:
    """Match rates of candidates by feature, a small integer."""

    def __init__(self, priors: NDArray[np.float64]) -> None:
        """
        Args:
            priors: What is believed of each feature at first.
        """
        self._priors = priors
        self._hits = np.zeros_like(priors)
        self._tries = np.zeros_like(priors)

    @property
    def estimates(self) -> NDArray[np.float64]:
        """Of each feature: the probability that a candidate is drawn, given that its parent is reached."""
        known = learning.PRIOR_DRAWS * self._priors + self._hits
        return np.clip(known / (learning.PRIOR_DRAWS + self._tries), LEAST, MOST)

    def learn(self, features_K: Int64s, hits_K: NDArray[np.bool_]) -> None:
        """Takes in candidates whose parents were reached."""
        if not len(features_K):
            return
        num = len(self._priors)
        tries = np.bincount(features_K, minlength=num)
        kept = learning.DRAWS**tries
        self._hits = kept * self._hits + np.bincount(features_K, hits_K, minlength=num)
        self._tries = kept * self._tries + tries


def learn_walk(
    forest: Forest,
    rows_E: Int64s,
    walk: TreeWalk,
    *,
    rates: Rates,
    sharpness: Sharpness | None = None,
    scorings_E: Int64s | None = None,
) -> None:
    """Learns from what was committed, before the trees follow it.

    Args:
        forest: The trees.
        rows_E: Sessions.
        walk: The way of the committed tokens.
        rates: Of candidates with a feature.
        sharpness: Of those with a score; None: there are none.
        scorings_E: How those of each session were scored.
    """
    entries_K, steps_K, hits_K = walk.entries_K, walk.steps_K, walk.hits_K
    places_K = forest.places(rows_E[entries_K], walk.nodes_K)
    features_K = forest.features_SM.take(places_K)
    copied = (features_K > 0).nonzero()[0]
    if len(copied):
        rates.learn(features_K[copied].astype(np.int64), hits_K[copied])
        scored = (features_K <= 0).nonzero()[0]
        entries_K, steps_K, hits_K = entries_K[scored], steps_K[scored], hits_K[scored]
        places_K, features_K = places_K[scored], features_K[scored]
    if sharpness is None or scorings_E is None:
        return
    sharpness.learn(
        families_K=entries_K * walk.path_ET.shape[1] + steps_K,
        scorings_K=_classes(scorings_E[entries_K], -features_K.astype(np.int64)),
        estimates_K=forest.estimates_SM.take(places_K),
        slopes_K=forest.slopes_SM.take(places_K),
        hits_K=hits_K,
    )


def _classes(scorings: Int64s, levels: Int64s | int) -> Int64s:
    return scorings + len(PRIORS) * levels
