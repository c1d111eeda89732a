"""The two losses."""

from __future__ import annotations

import math

import pytest
import torch

from outrider.actors.train.objective import distillation_loss, text_loss
from outrider.actors.train.recipe import Shape, build

SHAPE = Shape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=64)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
ROWS = torch.arange(48).reshape(3, 16)


def test_untrained_model_loses_about_the_logarithm_of_the_vocabulary() -> None:
    """The loss is in nats per token."""
    torch.manual_seed(0)
    assert text_loss(build(SHAPE, SPECIAL), ROWS).item() == pytest.approx(math.log(64), abs=0.1)


def test_a_draft_equal_to_its_target_has_nothing_to_learn() -> None:
    """The divergence of a model from itself is zero, from another it is positive."""
    torch.manual_seed(0)
    target, other = build(SHAPE, SPECIAL), build(SHAPE, SPECIAL)
    assert distillation_loss(target, target, ROWS).item() == pytest.approx(0.0, abs=1e-6)
    assert distillation_loss(other, target, ROWS).item() > 1e-4


def test_distillation_teaches_the_draft_only() -> None:
    """No gradient reaches the target."""
    target, draft = build(SHAPE, SPECIAL), build(SHAPE, SPECIAL)
    distillation_loss(draft, target, ROWS).backward()  # type: ignore[no-untyped-call]
    assert all(value.grad is None for value in target.parameters())
    assert all(value.grad is not None for value in draft.parameters())
