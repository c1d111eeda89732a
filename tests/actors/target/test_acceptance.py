"""Online calibration of a drafter's estimates."""

from __future__ import annotations

import random

import pytest

from outrider.actors.target.acceptance import Calibration


def test_without_evidence_the_statement_counts() -> None:
    """A new drafter is believed."""
    assert Calibration()(0.37) == 0.37


def test_overconfident_drafter_is_corrected() -> None:
    """Stated 0.9, drawn half the time: expected about half."""
    calibration, rng = Calibration(), random.Random(3)
    for _ in range(2000):
        calibration.observe(0.9, rng.random() < 0.5)
        calibration.observe(0.1, rng.random() < 0.3)
    assert abs(calibration(0.9) - 0.5) < 0.06
    assert abs(calibration(0.1) - 0.3) < 0.06
    assert calibration(0.5) == 0.5


def test_calibration_stays_a_probability() -> None:
    """Extremes do not leave [0, 1]."""
    calibration = Calibration()
    for _ in range(100):
        calibration.observe(1.0, False)
        calibration.observe(0.0, True)
    assert 0.0 <= calibration(1.0) < 0.2
    assert 0.8 < calibration(0.0) <= 1.0


@pytest.mark.parametrize("stated", [0.004, 0.02, 0.055])
def test_unlikely_candidates_are_never_worth_nothing(stated: float) -> None:
    """A drafter that states too much of what is unlikely: still in order, still above 0, and right on the whole."""
    calibration, rng = Calibration(), random.Random(5)
    for _ in range(4000):
        calibration.observe(0.01, rng.random() < 0.002)
        calibration.observe(0.05, rng.random() < 0.01)
    assert 0.0 < calibration(stated) < stated / 2
    assert calibration(0.02) < calibration(0.04)
    assert abs(calibration(0.05) - 0.01) < 0.006


def test_what_a_byte_rounds_off_keeps_its_order() -> None:
    """A stated 0 is expected less often than the least that a byte states above it, a stated 1 more often than the most below."""
    calibration, rng = Calibration(), random.Random(7)
    for _ in range(4000):
        for stated in (0.0, 0.05, 0.95, 1.0):
            calibration.observe(stated, rng.random() < stated)
    for _ in range(3):
        calibration.observe(0.0, True)
        calibration.observe(1.0, False)
    assert 0.0 < calibration(0.0) < calibration(1 / 255) < 0.01
    assert 0.99 < calibration(254 / 255) < calibration(1.0) < 1.0


def test_likely_candidates_are_never_certain() -> None:
    """The same seen from the other end."""
    calibration, rng = Calibration(), random.Random(6)
    for _ in range(4000):
        calibration.observe(0.95, rng.random() < 0.99)
    assert 0.98 < calibration(0.95) < 1.0
    assert calibration(0.95) < calibration(0.97) < 1.0


def test_table_reports_reliability() -> None:
    """Mean statement, frequency and weight of each bin that was seen."""
    calibration = Calibration()
    calibration.observe(0.5, True)
    calibration.observe(0.5, False)
    ((stated, drawn, weight),) = calibration.table()
    assert stated == 0.5
    assert abs(drawn - 0.5) < 1e-3
    assert weight > 1.9
