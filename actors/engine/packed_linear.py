"""Linear layers with a second copy of their weights, packed for the small matrix products of tree passes.

On a CPU the product of a few rows with a weight matrix takes torch's default kernels nearly as long for each row as the
first row took alone; from weights that were packed once for oneDNN, sixteen rows take about half as long (measured figures
are in `docs/journal.md`). For how many rows, and which shapes, it pays is timed when a model is loaded; one or two rows stay
with the default, which is a matrix-vector product. The packed product is
torch's own, as its compiler uses it; where a build of torch lacks it, nothing is packed.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TRIED_ROWS = (3, 4, 6, 8, 16, 32)
"""Numbers of rows at which both products are timed, once for each shape of weights, when a model is loaded."""

MOST_ROWS = 1024
"""Rows up to which the packed product is used; prompts longer than this are as fast by default."""

CLEARLY = 0.95
"""The packed product is used where it takes at most this part of the default's time: a tie is not worth the memory."""

TIMED_CALLS = 40
"""Calls of each timing; the fastest of four batches of ten counts. A shape takes some milliseconds in all."""

LARGEST_BYTES = 2 * 2**30
"""Weights of a model beyond which nothing is packed unless asked for: the copy takes as much memory again."""


class PackedLinear(nn.Module):
    """A linear layer that multiplies few rows by packed weights. Same parameters, same results up to rounding."""

    def __init__(self, layer: nn.Linear, fewest_rows: int = TRIED_ROWS[0]) -> None:
        """Shares the parameters of a layer and packs its weights as they are now; later changes are not seen.

        Args:
            layer: A float32 layer on a CPU.
            fewest_rows: Rows from which the packed product is used.
        """
        super().__init__()
        self.fewest_rows = fewest_rows
        self.weight, self.bias = layer.weight, layer.bias
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self._packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach())

    def forward(self, rows: Tensor) -> Tensor:
        """As `nn.Linear`."""
        if not self.fewest_rows <= rows.shape[-2] <= MOST_ROWS:
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
    kinds = {(layer.weight.shape, layer.weight.is_contiguous()) for _, _, layer in found}
    fewest = {kind: fewest_rows(kind[0], is_by_output=kind[1]) for kind in kinds}
    worth_it = []
    for parent, name, layer in found:
        rows = fewest[layer.weight.shape, layer.weight.is_contiguous()]
        if rows > 0:
            worth_it.append((parent, name, PackedLinear(layer, rows)))
    for parent, name, packed in worth_it:
        setattr(parent, name, packed)
    return len(worth_it)


def fewest_rows(shape: torch.Size, *, is_by_output: bool = True) -> int:
    """The least number of rows from which, and for all more, the packed product is clearly faster; 0 if there is none.

    Args:
        shape: Of the weights, (outputs, inputs).
        is_by_output: Whether the weights of an output lie side by side, as usual; else those of an input do.
    """
    layer = nn.Linear(shape[1], shape[0], bias=False)
    if not is_by_output:
        layer.weight.data = layer.weight.data.t().contiguous().t()
    packed = PackedLinear(layer)
    fewest = 0
    with torch.inference_mode():
        for num_rows in reversed(TRIED_ROWS):
            rows_NI = torch.ones(1, num_rows, shape[1])
            if _seconds(packed, rows_NI) > CLEARLY * _seconds(layer, rows_NI):
                break
            fewest = num_rows
    return fewest


def _seconds(layer: nn.Module, rows_NI: Tensor) -> float:
    batches = []
    for _ in range(4):
        began = time.perf_counter()
        for _ in range(TIMED_CALLS // 4):
            layer(rows_NI)
        batches.append(time.perf_counter() - began)
    return min(batches)


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
