"""Linear layers with a second copy of their weights, packed for the small matrix products of tree passes.

On a CPU the product of a few rows with a weight matrix takes torch's default kernels nearly as long for each row as the
first row took alone; from weights that were packed once for oneDNN, sixteen rows take about half as long (measured figures
are in `docs/journal.md`). One or two rows stay with the default, which is a matrix-vector product. The packed product is
torch's own, as its compiler uses it; where a build of torch lacks it, nothing is packed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEWEST_ROWS = 3
"""Rows from which the packed product is faster; below, a matrix-vector product or two are."""

MOST_ROWS = 1024
"""Rows up to which it is used; prompts longer than this are as fast by default."""

LARGEST_BYTES = 2 * 2**30
"""Weights of a model beyond which nothing is packed unless asked for: the copy takes as much memory again."""


class PackedLinear(nn.Module):
    """A linear layer that multiplies few rows by packed weights. Same parameters, same results up to rounding."""

    def __init__(self, layer: nn.Linear) -> None:
        """Shares the parameters of a layer and packs its weights as they are now; later changes are not seen."""
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())

    def forward(self, rows: Tensor) -> Tensor:
        """As `nn.Linear`."""
        if not FEWEST_ROWS <= rows.shape[-2] <= MOST_ROWS:
            return F.linear(rows, self.weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self.bias, "none", [], ""
        )
        return product


def pack_linears(model: nn.Module) -> int:
    """Puts packed layers in the place of a model's float32 linear layers. The model must be on a CPU.

    Returns:
        Number of layers that were packed; 0 where this build of torch cannot.
    """
    if not can_pack():
        return 0
    found = [
        (parent, name, layer)
        for parent in model.modules()
        for name, layer in parent.named_children()
        if type(layer) is nn.Linear and layer.weight.dtype == torch.float32
    ]
    for parent, name, layer in found:
        setattr(parent, name, PackedLinear(layer))
    return len(found)


def should_pack(model: nn.Module, wanted: bool | None) -> bool:
    """Whether to pack: as wanted, or, if that is left open, unless the copies would take too much memory."""
    parameters = list(model.parameters())
    if not parameters or any(p.device.type != "cpu" for p in parameters):
        return False
    if wanted is not None:
        return wanted
    return sum(p.numel() * p.element_size() for p in parameters) <= LARGEST_BYTES


def can_pack() -> bool:
    """Whether this build of torch has the packed product and gets it right."""
    weight_OI, rows_NI = torch.arange(12.0).view(3, 4), torch.arange(8.0).view(2, 4)
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight_OI)
        product = torch.ops.mkldnn._linear_pointwise(rows_NI, packed, None, "none", [], "")
    except (AttributeError, RuntimeError):
        return False
    return bool(torch.equal(product, rows_NI @ weight_OI.T))
