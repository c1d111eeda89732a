"""The loss of the target."""

from __future__ import annotations

import math

import pytest
import torch

from outrider.actors.train.objective import text_loss
from outrider.actors.train.recipe import Shape, build

SHAPE = Shape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=64)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
ROWS = torch.arange(48).reshape(3, 16)


def test_untrained_model_loses_about_the_logarithm_of_the_vocabulary() -> None:
    """The loss is in nats per token."""
    torch.manual_seed(0)
    assert text_loss(build(SHAPE, SPECIAL), ROWS).item() == pytest.approx(math.log(64), abs=0.1)
