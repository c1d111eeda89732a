"""Weights in memory of the process, laid out for products of few rows."""

from __future__ import annotations

import torch
from torch import nn

from outrider.actors.engine.load.weights import by_input, own_weights

CPU = torch.device("cpu")


def tied() -> nn.Sequential:
    """An embedding, a layer with bias, and a head that shares the embedding's weights."""
    model = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 8), nn.Linear(8, 30, bias=False))
    model[2].weight = model[0].weight
    return model


def test_values_and_shapes_stay() -> None:
    """Only the order in memory is another: the weights of one input follow one another."""
    weight_OI = torch.arange(12.0).view(3, 4)
    laid_out = by_input(weight_OI)
    assert torch.equal(laid_out, weight_OI)
    assert laid_out.stride() == (1, 3)
    # Once more gives a copy, too.
    assert by_input(laid_out).data_ptr() != laid_out.data_ptr()


def test_weights_are_copies_and_held_once() -> None:
    """Every tensor is another one in memory, the tied pair is still one, and the model computes what it did."""
    model, ids = tied(), torch.tensor([3, 29])
    before = {tensor.data_ptr() for tensor in model.parameters()}
    expected = model(ids)
    own_weights(model, CPU)
    assert not before & {tensor.data_ptr() for tensor in model.parameters()}
    assert model[2].weight is model[0].weight
    assert dict(model.named_parameters(remove_duplicate=False))["2.weight"].stride() == (1, 30)
    torch.testing.assert_close(model(ids), expected)


def test_elsewhere_moving_is_the_copy() -> None:
    """For another device nothing is copied on the host first."""
    model = tied()
    before = [tensor.data_ptr() for tensor in model.parameters()]
    own_weights(model, torch.device("cuda"))
    assert [tensor.data_ptr() for tensor in model.parameters()] == before
