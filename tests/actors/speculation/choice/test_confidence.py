"""Confidence of rows and the lengths that follow from it."""

from __future__ import annotations

import math

import pytest
import torch

from outrider.actors.speculation.confidence import confident_length, row_confidence


@pytest.mark.parametrize(
    ("logits", "confidence", "length"),
    [((4.0, 1.0, 0.0, -1.0), 0.8708, 6), ((1.0, 0.8, 0.5, 0.2), 0.2146, 1)],
)
def test_known_rows(logits: tuple[float, ...], confidence: float, length: int) -> None:
    """Values computed elsewhere, with equal weights and a greatest length of 8."""
    (found,) = row_confidence(torch.tensor([logits])).tolist()
    assert found == pytest.approx(confidence, abs=5e-5)
    assert confident_length(found, longest=8) == length


def test_rows_are_rated_one_by_one_between_zero_and_one() -> None:
    """A sure row is near 1, a flat one is a sixth (no margin is a half by the sigmoid); excluded tokens do no harm."""
    rows_RV = torch.zeros(3, 50)
    rows_RV[0, 7] = 60.0
    rows_RV[2, 1:] = -math.inf
    found = row_confidence(rows_RV)
    assert found[0] == pytest.approx(1.0)
    assert found[1] == pytest.approx(1 / 6)
    assert found[2] == pytest.approx(1.0)
    assert row_confidence(torch.zeros(2, 1)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("confidence", "aggressiveness", "length"),
    [(0.0, 1.0, 1), (1.0, 1.0, 16), (0.5, 1.0, 8), (0.5, 0.5, 4), (0.5, 8.0, 16), (0.9, 0.01, 1)],
)
def test_lengths_stay_within_one_and_the_longest(
    confidence: float, aggressiveness: float, length: int
) -> None:
    """The aggressiveness stretches; the bounds hold."""
    assert confident_length(confidence, longest=16, aggressiveness=aggressiveness) == length


def test_two_tokens_are_enough_for_a_confidence() -> None:
    """The formula of the source by hand: entropy over ln 2, and both margins."""
    probs = (math.e / (math.e + 1.0), 1.0 / (math.e + 1.0))
    entropy = -sum(prob * math.log(prob) for prob in probs)
    expected = (1.0 - entropy / math.log(2.0) + probs[0] + probs[0] - probs[1]) / 3.0
    assert row_confidence(torch.tensor([[0.0, 1.0]])).tolist() == pytest.approx([expected])
