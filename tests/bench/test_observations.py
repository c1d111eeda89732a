"""Reliability diagrams."""

from __future__ import annotations

import numpy as np
import pytest

from bench.figures import observations
from bench.figures.observations import Bin, calibration_error, diagram
from outrider.actors.speculation.learning import PRIOR_DRAWS
from outrider.actors.target.candidates.trust import Trust


def test_bins_hold_what_was_expected_and_what_came() -> None:
    """Candidates of about the same expectation are one bin; certainty belongs to the last."""
    pairs = [(0.12, False), (0.18, True), (0.95, True), (1.0, True)]
    found = diagram(pairs)
    assert [bin_.expected for bin_ in found] == pytest.approx([0.15, 0.975])
    assert [(bin_.drawn, bin_.count) for bin_ in found] == [(0.5, 2), (1.0, 2)]


def test_error_weighs_candidates_alike() -> None:
    """Three of a bin that is off by 0.4, one of a bin that is right."""
    bins = [Bin(expected=0.5, drawn=0.9, count=3), Bin(expected=0.2, drawn=0.2, count=1)]
    assert calibration_error(bins) == pytest.approx(0.3)
    assert calibration_error([]) == 0.0


def test_a_target_that_is_watched_notes_what_it_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was stated, what that was believed to be worth, and what came; the target's own candidates are left out."""
    monkeypatch.setattr(Trust, "observe", Trust.observe)
    observations.record_observations()
    trust = Trust()
    trust.observe(np.array([0, -1]), np.array([0.8, 0.5]), np.array([False, True]))
    trust.observe(np.array([0]), np.array([0.8]), np.array([True]))
    (first, second) = observations.take_observations()
    assert first == (0.8, 0.8, False)
    assert second[1] == pytest.approx(0.8 * PRIOR_DRAWS / (PRIOR_DRAWS + 0.8))
    assert (second[0], second[2]) == (0.8, True)
    assert observations.take_observations() == []
    assert trust.of(0) == pytest.approx((PRIOR_DRAWS + 1.0) / (PRIOR_DRAWS + 1.6))
