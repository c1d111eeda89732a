"""The joint optimiser."""

from __future__ import annotations

import torch

from outrider.actors.train.optimizer import Optimizer
from outrider.actors.train.recipe import Shape, build

SHAPE = Shape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=32)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}


def test_one_step_moves_every_parameter_and_clears_gradients() -> None:
    """No parameter is left to neither optimiser."""
    torch.manual_seed(0)
    model = build(SHAPE, SPECIAL)
    optimizer = Optimizer(model, 0.02, 1e-3)
    before = {name: value.clone() for name, value in model.named_parameters()}
    model(input_ids=torch.arange(12)[None]).logits.square().sum().backward()
    optimizer.step(1.0)
    for name, value in model.named_parameters():
        assert not torch.equal(before[name], value), name
        assert value.grad is None
