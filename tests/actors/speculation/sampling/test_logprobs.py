"""Reported log-probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.actors.speculation.options.reference import order_of, probabilities
from torch import Tensor

from outrider.actors.speculation.sampling.logprobs import logprobs


def test_logprobs_are_those_of_the_model() -> None:
    """Against float64; natural logarithm."""
    logits_NV = torch.randn(5, 300, generator=torch.Generator().manual_seed(2)) * 6
    ids_N = torch.tensor([0, 299, 7, 7, 100])
    report = logprobs(logits_NV, ids_N, 20)
    for row in range(5):
        exact = np.log(probabilities(logits_NV[row].numpy().astype(np.float64)))
        assert report.chosen_N[row].item() == pytest.approx(exact[ids_N[row]], abs=1e-5)
        assert report.top_ids_NK[row].tolist() == order_of(exact)[:20].tolist()
        assert report.top_NK[row].tolist() == pytest.approx(exact[report.top_ids_NK[row]], abs=1e-5)


def test_alternatives_come_in_one_order_whatever_the_ties() -> None:
    """Equal probabilities by ascending id, at the cut as well as above it."""
    logits_NV = torch.zeros(2, 4000)
    logits_NV[1, 3000:] = 1.0
    logits_NV[1, 20] = 2.0
    report = logprobs(logits_NV, torch.tensor([0, 0]), 4)
    assert report.top_ids_NK.tolist() == [[0, 1, 2, 3], [20, 3000, 3001, 3002]]


def test_alternatives_do_not_depend_on_which_equal_ones_a_device_finds_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`topk` promises nothing about ties; here it takes the highest ids and lists them in any order."""
    topk = torch.Tensor.topk

    def from_the_end(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        values, ids = topk(scores.flip(1), k)
        return values, scores.shape[1] - 1 - ids

    monkeypatch.setattr(torch.Tensor, "topk", from_the_end)
    logits_NV = torch.tensor([[1.0, 2.0, 1.0, 2.0, 1.0], [0.0, 3.0, 3.0, 3.0, 0.0]])
    report = logprobs(logits_NV, torch.tensor([0, 0]), 3)
    assert report.top_ids_NK.tolist() == [[1, 3, 0], [1, 2, 3]]
    logits_NV = torch.tensor([[1.0, 1.0, 0.0], [0.0, 5.0, 0.0]])
    assert logprobs(logits_NV, torch.tensor([0, 0]), 1).top_ids_NK.tolist() == [[0], [1]]


def test_no_alternatives_and_more_than_there_are() -> None:
    """0 reports the chosen token alone; a number above V reports all."""
    logits_NV = torch.tensor([[0.0, 0.0]])
    nothing = logprobs(logits_NV, torch.tensor([1]), 0)
    assert nothing.top_NK.shape == nothing.top_ids_NK.shape == (1, 0)
    report = logprobs(logits_NV, torch.tensor([1]), 20)
    assert report.top_ids_NK.tolist() == [[0, 1]]
    assert report.chosen_N.item() == pytest.approx(-math.log(2))


def test_impossible_tokens_have_minus_infinity() -> None:
    """A model may exclude a token itself."""
    report = logprobs(torch.tensor([[-torch.inf, 0.0]]), torch.tensor([0]), 2)
    assert report.chosen_N.item() == -torch.inf
    assert report.top_NK.tolist() == [[0.0, -torch.inf]]
