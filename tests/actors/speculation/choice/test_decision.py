"""The decision model: what it sees, and its arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from outrider.actors.speculation.stop_model import (
    NUM_FEATURES,
    NUM_HIDDEN,
    DecisionModel,
    row_features,
)


def random_decision(seed: int) -> DecisionModel:
    """A model with random weights."""
    rng = np.random.default_rng(seed)
    return DecisionModel(
        hidden_FH=rng.normal(size=(NUM_FEATURES, NUM_HIDDEN)).astype(np.float32),
        hidden_bias_H=rng.normal(size=NUM_HIDDEN).astype(np.float32),
        output_H=rng.normal(size=NUM_HIDDEN).astype(np.float32),
        output_bias=0.25,
    )


def test_rows_are_rated_by_their_features() -> None:
    """One probability a row."""
    scores_RV = torch.from_numpy(np.random.default_rng(3).normal(size=(4, 20)))
    model = random_decision(1)
    rates_R = model.rate(scores_RV)
    assert rates_R.shape == (4,)
    assert rates_R.tolist() == model.scores(row_features(scores_RV)).tolist()
    assert len(set(rates_R.tolist())) == 4


def test_features_are_the_greatest_probabilities_and_the_entropy() -> None:
    """Descending; a row of fewer tokens is filled up with zeros; excluded tokens count for nothing."""
    probs = torch.tensor([0.5, 0.25, 0.125, 0.125])
    row_4V = torch.cat([probs.log(), torch.tensor([-math.inf] * 3)])[torch.randperm(7)]
    (features_F,) = row_features(row_4V.unsqueeze(0))
    assert features_F[:7].tolist() == pytest.approx([0.5, 0.25, 0.125, 0.125, 0, 0, 0])
    assert features_F[7:10].tolist() == [0, 0, 0]
    assert features_F[10] == pytest.approx(1.75 * math.log(2))
    features_RF = row_features(torch.stack([torch.zeros(40), torch.arange(40.0)]))
    assert features_RF[0] == pytest.approx([*[1 / 40] * 10, math.log(40)])
    tail = [math.exp(-place) * (1.0 - math.exp(-1.0)) for place in range(10)]
    assert features_RF[1, :10] == pytest.approx(tail)
    assert features_RF[1, 10] == pytest.approx(1.0407, abs=1e-4)


def test_scores_are_those_of_the_network() -> None:
    """Two layers, a rectifier between them, a sigmoid at the end."""
    model = random_decision(1)
    features_RF = np.random.default_rng(2).random((5, NUM_FEATURES)).astype(np.float32)
    hidden_RH = torch.relu(
        torch.from_numpy(features_RF) @ torch.from_numpy(model.hidden_FH)
        + torch.from_numpy(model.hidden_bias_H)
    )
    expected_R = torch.sigmoid(hidden_RH @ torch.from_numpy(model.output_H) + model.output_bias)
    assert model.scores(features_RF) == pytest.approx(expected_R.numpy(), rel=1e-5, abs=1e-7)
    with np.errstate(all="raise"):
        extreme = model.scores(np.full((1, NUM_FEATURES), 1e4, np.float32))
        assert extreme.tolist() in ([0.0], [1.0])


def test_misshapen_and_broken_weights_are_refused() -> None:
    """A file of another network must not be used."""
    model = random_decision(3)
    with pytest.raises(ValueError, match=r"output_H has shape \(3,\)"):
        replace(model, output_H=np.zeros(3, dtype=np.float32))
    with pytest.raises(ValueError, match="not finite"):
        replace(model, hidden_bias_H=np.full(NUM_HIDDEN, np.nan, dtype=np.float32))
    with pytest.raises(ValueError, match="output_bias is inf"):
        replace(model, output_bias=math.inf)
