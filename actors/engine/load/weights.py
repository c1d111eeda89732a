"""The weights of a loaded model as this process wants them: its own, held once, and laid out for products of few rows."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn


def own_weights(model: nn.Module, device: torch.device, *, tables: Collection[str] = ()) -> None:
    """Moves a freshly loaded model's weights into memory of this process, one tensor at a time.

    They may be a mapping of the file: written over, it would change a running model, or end the process if cut short. Tied
    weights stay tied. On a CPU the copy of a linear layer's weights is laid out by `by_input`.

    Args:
        model: On the CPU. Changed in place.
        device: Where the model will run. Elsewhere than on the CPU, moving it there is the copy, and nothing is done here.
        tables: Buffers, by their own names, that rows are multiplied with as with a linear layer's weights.
    """
    if device.type != "cpu":
        return
    of_products = {
        id(each.weight)
        for each in model.modules()
        if type(each) is nn.Linear and type(each.weight.data) is Tensor
    }
    of_products |= {id(each) for name, each in model.named_buffers() if name in tables}
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.data = by_input(tensor.data) if id(tensor) in of_products else tensor.data.clone()


def by_input(weight_OI: Tensor) -> Tensor:
    """A copy of equal shape in which the weights of one input lie side by side, those of one output apart.

    torch's products of four to eight rows with a weight matrix take up to half as long from this layout, one row and many rows
    about as long (`docs/journal.md`). An embedding tied to the weights gathers its rows then: some microseconds each.
    """
    return weight_OI.t().clone(memory_format=torch.contiguous_format).t()
