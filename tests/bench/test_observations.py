"""Reliability diagrams."""

from __future__ import annotations

import pytest

from bench.observations import Bin, calibration_error, diagram


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
