"""How often candidates of a kind turn out to be the target's draw, learned while serving.

Pure. A *feature* says what a drafter knows about a candidate when it proposes it: its rank among its siblings and how far
its score is from theirs, or the length of the match that it was copied from. Each time the target commits a token below a
node whose children were drafted, every child is one observation: it was that token, or not. The table starts from a
stated prior that a few observations overrule, and forgets slowly, so that it follows the text and a changed model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import IntEnum
from math import exp

Feature = tuple[int, ...]
"""What is known about a candidate, as small integers."""

PRIOR_WEIGHT = 8.0
"""Observations that the prior counts for. Less: the first mismatches swing the tree. More: a bad prior stays for long."""

HORIZON = 2000.0
"""Observations of one feature before the older ones are weighed half. Less follows a changing text faster, with more noise
(at 2000 a frequency of 0.5 is known to about 0.015)."""

GAP_EDGES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Borders of the bins of score differences, in nats. Narrow where the match frequency changes fast."""

_GAP_CENTRES = (0.12, 0.37, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 8.0)

_FLOOR, _CEILING = 0.002, 0.995


class Scoring(IntEnum):
    """How candidates were scored; match frequencies of different ways are not mixed."""

    GREEDY = 0
    """Logits alone, at temperature 0."""

    COUPLED = 1
    """Logits plus the noise that the target adds too."""

    BLIND = 2
    """Logits alone, while the target samples."""

    TARGET = 3
    """Not scored here: a root that the target proposed."""


class Calibration:
    """Match frequencies by feature."""

    def __init__(
        self,
        prior: Callable[[Feature], float],
        *,
        prior_weight: float = PRIOR_WEIGHT,
        horizon: float = HORIZON,
    ) -> None:
        self._prior = prior
        self._prior_weight = prior_weight
        self._horizon = horizon
        self._counts: dict[Feature, list[float]] = {}
        """Matches, candidates, and the matches that the prior counts for."""
        self._estimates: dict[Feature, float] = {}

    def estimate(self, feature: Feature) -> float:
        """Probability, given its parent is reached, that a candidate with this feature is the target's draw."""
        known = self._estimates.get(feature)
        if known is None:
            known = self._estimates[feature] = _clip(self._prior(feature))
        return known

    def observe(self, feature: Feature, matched: bool) -> None:
        """Learns from one candidate whose parent was reached."""
        counts = self._counts.get(feature)
        if counts is None:
            prior = self._prior(feature) * self._prior_weight
            counts = self._counts[feature] = [0.0, 0.0, prior]
        if counts[1] >= self._horizon:
            counts[0] *= 0.5
            counts[1] *= 0.5
        counts[0] += matched
        counts[1] += 1.0
        mean = (counts[2] + counts[0]) / (self._prior_weight + counts[1])
        self._estimates[feature] = _clip(mean)

    def table(self) -> dict[Feature, tuple[float, float]]:
        """Observed (matches, candidates) by feature, for reports."""
        return {feature: (counts[0], counts[1]) for feature, counts in self._counts.items()}


def score_features(scoring: Scoring, scores: Sequence[float]) -> list[Feature]:
    """Features (scoring, rank, gap bin) of candidates with these scores.

    Args:
        scoring: How they were scored.
        scores: Scores, descending. The last one is the runner-up of the others, and gets a feature too.
    """
    first = scores[0]
    lead = first - scores[1] if len(scores) > 1 else GAP_EDGES[-1]
    kind = int(scoring)
    features: list[Feature] = [(kind, 1, bisect_right(GAP_EDGES, lead))]
    for rank, score in enumerate(scores[1:], start=2):
        features.append((kind, rank, bisect_right(GAP_EDGES, first - score)))
    return features


def score_prior(feature: Feature) -> float:
    """What is believed about (scoring, rank, gap bin) before anything is observed.

    The shape is that of a small distilled drafter: about .68, .15, .06, .03 for ranks 1 to 4 under coupled sampling at
    temperature 0.8, more for a clear first, less for a distant follower.
    """
    scoring, rank, gap_bin = feature
    gap = _GAP_CENTRES[gap_bin]
    scale = 0.55 if scoring == Scoring.BLIND else 1.0
    if rank == 1:
        return scale * (1.0 - 0.62 * exp(-gap / 1.3))
    return scale * 0.5 / rank * exp(-gap / 1.6)


def match_prior(feature: Feature) -> float:
    """What is believed about (match length, alternative, depth) of a token copied from earlier text."""
    length, alternative, depth = feature
    first = (0.25, 0.45, 0.6, 0.7)[min(length, 4) - 1]
    if alternative:
        first *= 0.35
    return first if depth == 1 else 0.8


def _clip(probability: float) -> float:
    return min(max(probability, _FLOOR), _CEILING)
