"""The root mean square norm (Zhang and Sennrich 2019, arXiv 1910.07467), in as few calls as there can be."""

from __future__ import annotations

import torch
from torch import Tensor


def norm(rows: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """Norm over the last dimension.

    Args:
        rows: [.., D] float32.
        weight: What broadcasts to them.
        eps: [1].
    """
    # Three calls less than a mean and a sum with a number, which torch turns into more.
    sums = torch.mul(rows, rows).sum(-1, keepdim=True)
    return (rows * torch.add(eps, sums, alpha=1.0 / rows.shape[-1]).rsqrt_()).mul_(weight)


def norm_in_float32(rows: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """As `norm`, of rows of any type, with the mean taken in float32 as modules of transformers do."""
    wide = rows.float()
    sums = torch.mul(wide, wide).sum(-1, keepdim=True)
    scaled = wide * torch.add(eps, sums, alpha=1.0 / rows.shape[-1]).rsqrt_()
    return scaled.to(rows.dtype).mul_(weight)
