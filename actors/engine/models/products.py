"""Products of rows and weights as functions, and several of them as one: a module finds out each time what it has."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

Product = partial[Tensor]
"""Rows [R, in] times weights, which it has as `mat2`; shape [R, out]."""


def product_of(linear: nn.Linear) -> Product:
    """A linear layer's product, with the weights that it has now."""
    weight_IO = linear.weight.detach().t()
    # The annotation of torch leaves out that there may be none.
    bias: Tensor | None = linear.bias
    if bias is None:
        return partial(torch.mm, mat2=weight_IO)
    return partial(torch.addmm, bias.detach(), mat2=weight_IO)


def joined(*parts: nn.Linear) -> nn.Linear:
    """One layer for several that read the same rows; the parts' weights become views of its own, so nothing is held twice and the parts go on
    working. On a CPU they are laid out as `weights.by_input` does."""
    has_bias = parts[0].bias is not None
    whole = nn.Linear(parts[0].in_features, 1, bias=has_bias, device="meta")
    whole.out_features = sum(part.out_features for part in parts)
    for name in ("weight", "bias") if has_bias else ("weight",):
        tensors = [getattr(part, name).detach() for part in parts]
        if name == "weight" and tensors[0].device.type == "cpu":
            together = torch.cat([tensor.t() for tensor in tensors], dim=1).t()
        else:
            together = torch.cat(tensors)
        setattr(whole, name, nn.Parameter(together, requires_grad=False))
        start = 0
        for part in parts:
            end = start + part.out_features
            getattr(part, name).data = together[start:end]
            start = end
    return whole
