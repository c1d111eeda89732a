"""The joint optimiser."""

from __future__ import annotations

import torch

from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.loop.optimizer import Float32Muon, Optimizer

SHAPE = ModelShape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=32)
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


def test_float32_iteration_follows_the_other() -> None:
    """Ten updates of a wide and a tall matrix stay as close as bfloat16 allows; the state is the same."""
    torch.manual_seed(0)
    start = [torch.randn(8, 12), torch.randn(12, 8)]
    pairs = [[torch.nn.Parameter(m.clone()) for m in start] for _ in range(2)]
    both = [
        kind(matrices, lr=0.02, weight_decay=0.02)
        for kind, matrices in zip((torch.optim.Muon, Float32Muon), pairs, strict=True)
    ]
    for _ in range(10):
        grads = [torch.randn_like(m) for m in start]
        for optimizer, matrices in zip(both, pairs, strict=True):
            for matrix, grad in zip(matrices, grads, strict=True):
                matrix.grad = grad.clone()
            optimizer.step()  # type: ignore[no-untyped-call]
    for first, one, other in zip(start, *pairs, strict=True):
        moved = (one - first).norm()
        assert (one - other).norm() < 0.05 * moved
    both[1].load_state_dict(both[0].state_dict())
