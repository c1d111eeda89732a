"""Held-out measures on logits whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.loop.evaluate import agreement, compare, held_out_loss

SHAPE = ModelShape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=64)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
ROWS = {"a": np.arange(40, dtype=np.uint16).reshape(5, 8)}


def test_a_model_agrees_with_itself() -> None:
    """Every rate is one."""
    torch.manual_seed(0)
    model = build(SHAPE, SPECIAL)
    found = agreement(model, model, ROWS)["a"]
    assert found.first == found.among_four == pytest.approx(1.0)
    assert found.overlap == pytest.approx(1.0, abs=1e-5)
    assert found.loss == pytest.approx(held_out_loss(model, ROWS)["a"], abs=1e-6)


def test_compare_counts_each_measure() -> None:
    """One position is right at once, one among four, one not at all."""
    target = torch.zeros(3, 6)
    target[:, 5] = 20.0
    draft = torch.tensor([[0.0, 0, 0, 0, 0, 20], [20, 0, 0, 0, -1, 1], [20, 19, 18, 17, 16, 0]])
    loss, first, among_four, overlap = compare(draft, target, torch.tensor([5, 0, 0])).tolist()
    assert (first, among_four) == (1.0, 2.0)
    assert overlap == pytest.approx(1.0, abs=1e-2)
    assert loss == pytest.approx(-draft.log_softmax(-1)[[0, 1, 2], [5, 0, 0]].sum().item())


def test_loss_of_an_untrained_model_is_near_uniform() -> None:
    """Nats per token, over all rows, the last short batch included."""
    torch.manual_seed(0)
    assert held_out_loss(build(SHAPE, SPECIAL), ROWS)["a"] == pytest.approx(math.log(64), abs=0.2)
