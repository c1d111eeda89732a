"""The room that a model gets on its device, before it is loaded and when it is."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig

from outrider.actors.engine.checkpoint.model_facts import context_limit, memory_facts
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.device_memory import device_memory
from outrider.actors.engine.kv.sizing import CacheRoom, choose_room

PLAIN_TYPES = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of tensors in a file that loading turns into the model's type; others (quantised ones) stay what they are."""

LONGEST_HEADER = 100 * 2**20
"""Bytes of a safetensors header, at most, as the format says."""


def room_for(
    config: PreTrainedConfig,
    settings: EngineSettings,
    *,
    device: torch.device,
    name: str,
    model: nn.Module | None = None,
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
) -> CacheRoom:
    """Slots and context by settings, model and memory.

    Args:
        config: Of the model.
        settings: What is set, and what is left open.
        device: Where the model runs, or will.
        name: What errors call the model.
        model: The loaded model on its device; None: it is still to be loaded.
        dtype: Type it will have; a loaded one has its own.
        folder: Where the files of a model that is to be loaded lie; None: their size is not known, and not counted.

    Raises:
        ValueError: What is set does not fit the model or the memory, or the model does not fit at all.
    """
    if model is not None:
        dtype = next(each.dtype for each in model.parameters() if each.is_floating_point())
        # On a GPU they are no part of what is free any more.
        tensors = () if device.type == "cuda" else [*model.parameters(), *model.buffers()]
        weight_bytes = sum(each.numel() * each.element_size() for each in tensors)
    else:
        files = sorted(folder.glob("*.safetensors")) if folder is not None else []
        weight_bytes = sum(_weight_bytes(file, dtype.itemsize) for file in files)
    facts = memory_facts(
        config,
        max_context=context_limit(config, settings, name=name),
        itemsize=dtype.itemsize,
        weight_bytes=weight_bytes,
    )
    return choose_room(
        facts,
        device_memory(device, share=settings.gpu_share),
        num_slots=settings.num_slots,
        max_context=settings.max_context,
        max_scratch=settings.max_scratch,
    )


def _weight_bytes(file: Path, itemsize: int) -> int:
    """Bytes that a file's tensors take when they are loaded; 0 for a file that is damaged, of which loading tells more."""
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(min(length, LONGEST_HEADER)))
        tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
        return sum(
            math.prod(tensor["shape"]) * itemsize
            if tensor["dtype"] in PLAIN_TYPES
            else tensor["data_offsets"][1] - tensor["data_offsets"][0]
            for tensor in tensors
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0
