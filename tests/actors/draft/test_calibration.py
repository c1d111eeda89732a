"""The calibration of acceptance estimates."""

from __future__ import annotations

import random

import pytest

from outrider.actors.draft.calibration import (
    GAP_EDGES,
    Calibration,
    Scoring,
    match_prior,
    score_features,
    score_prior,
)


@pytest.mark.parametrize("frequency", [0.05, 0.4, 0.93])
def test_estimates_converge_to_the_frequency_of_matches(frequency: float) -> None:
    """After many observations an estimate is the observed frequency, whatever was believed before."""
    generator = random.Random(3)
    calibration = Calibration(lambda feature: 0.7)
    for _ in range(3000):
        calibration.observe((1, 1, 0), generator.random() < frequency)
    assert calibration.estimate((1, 1, 0)) == pytest.approx(frequency, abs=0.04)


def test_an_unseen_feature_has_its_prior() -> None:
    """Observations of one feature leave the others at their prior."""
    calibration = Calibration(lambda feature: 0.1 * feature[0])
    for _ in range(50):
        calibration.observe((1,), True)
    assert calibration.estimate((4,)) == pytest.approx(0.4)
    assert calibration.estimate((1,)) > 0.8


def test_old_observations_are_forgotten() -> None:
    """A drafter whose text changed is judged by the new text after a few horizons."""
    calibration = Calibration(lambda feature: 0.5, horizon=100)
    for _ in range(1000):
        calibration.observe((0,), True)
    for _ in range(400):
        calibration.observe((0,), False)
    assert calibration.estimate((0,)) < 0.1


def test_estimates_are_never_certain() -> None:
    """Estimates stay inside (0, 1), so that no candidate is worthless or free of doubt."""
    calibration = Calibration(lambda feature: float(feature[0]))
    for _ in range(5000):
        calibration.observe((0,), False)
        calibration.observe((1,), True)
    assert 0.0 < calibration.estimate((0,)) < 0.01
    assert 0.98 < calibration.estimate((1,)) < 1.0


def test_features_tell_rank_and_gap() -> None:
    """The first is described by its lead, the others by their distance from the first."""
    features = score_features(Scoring.COUPLED, [5.0, 3.8, -4.0])
    assert features == [(1, 1, 3), (1, 2, 3), (1, 3, len(GAP_EDGES))]


def test_an_only_score_is_a_clear_first() -> None:
    """Where options exclude every other token, the one left is as sure as can be."""
    assert score_features(Scoring.GREEDY, [1.5]) == [(0, 1, len(GAP_EDGES))]


def test_priors_are_ordered() -> None:
    """A clearer first and a longer match are believed more, a later rank less."""
    firsts = [score_prior((1, 1, gap)) for gap in range(len(GAP_EDGES) + 1)]
    assert firsts == sorted(firsts)
    ranks = [score_prior((1, rank, 2)) for rank in range(1, 5)]
    assert ranks == sorted(ranks, reverse=True)
    assert sum(ranks) <= 1.0
    matches = [match_prior((length, 0, 1)) for length in range(1, 5)]
    assert matches == sorted(matches)
    assert match_prior((4, 1, 1)) < match_prior((4, 0, 1))
