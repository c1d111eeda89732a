"""The precision of all training, and logits in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 itself. A CPU that does not is many times slower with it than in float32."""
    if device.type != "cpu":
        return True
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@contextmanager
def mixed_precision(device: torch.device) -> Iterator[None]:
    """Matrix products in bfloat16, the rest in float32; all in float32 where that is faster."""
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=has_fast_bfloat16(device)):
        yield


def logits_of(model: PreTrainedModel, rows_BL: torch.Tensor) -> torch.Tensor:
    """logits_BLV of every position, in the precision the model computed them in."""
    with mixed_precision(rows_BL.device):
        output = model(input_ids=rows_BL, use_cache=False)
    logits = output.logits
    assert isinstance(logits, torch.Tensor)
    return logits
