"""The room that a model gets on its device, before it is loaded and when it is."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig

from outrider.actors.engine.checkpoint.model_facts import context_limit, memory_facts
from outrider.actors.engine.checkpoint.weight_files import weight_files
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.sizing import CacheRoom, Memory, choose_room

PLAIN_TYPES = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of tensors in a file that loading turns into the model's type; others (quantised ones) stay what they are."""

LONGEST_HEADER = 100 * 2**20
"""Bytes of a safetensors header, at most, as the format says."""

CGROUP = Path("/sys/fs/cgroup")
"""Where Linux tells the limits of the container that the process runs in."""


def room_for(
    config: PreTrainedConfig,
    settings: EngineSettings,
    *,
    device: torch.device,
    name: str,
    model: nn.Module | None = None,
    dtype: torch.dtype = torch.float32,
    folder: Path | None = None,
    row_bytes: int | None = None,
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
        row_bytes: Keys and values of one token in all layers; None: what the configuration tells.

    Raises:
        ValueError: What is set does not fit the model or the memory, or the model does not fit at all.
    """
    if model is not None:
        dtype = next(each.dtype for each in model.parameters() if each.is_floating_point())
        # On a GPU they are no part of what is free any more.
        tensors = () if device.type == "cuda" else [*model.parameters(), *model.buffers()]
        weight_bytes = sum(each.numel() * each.element_size() for each in tensors)
    else:
        weight_bytes = sum(_weight_bytes(file, dtype.itemsize) for file in weight_files(folder))
    facts = memory_facts(
        config,
        max_context=context_limit(config, settings, name=name),
        itemsize=dtype.itemsize,
        weight_bytes=weight_bytes,
    )
    if row_bytes is not None:
        facts = replace(facts, row_bytes=row_bytes)
    return choose_room(
        facts,
        device_memory(device, share=settings.gpu_share),
        num_slots=settings.num_slots,
        max_context=settings.max_context,
        max_scratch=settings.max_scratch,
    )


def device_memory(device: torch.device, *, share: float = 1.0) -> Memory:
    """What an engine may take.

    On a GPU, what is free now, up to its share of the whole. On a CPU, all that the machine or the container has, whoever uses it
    now: keys and values take memory only where a session has written, so what is free at the start says little.

    Args:
        device: Where the model runs.
        share: Of a GPU, 0 to 1, where several actors have one.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        own = torch.cuda.memory_allocated(device)
        return Memory(total=min(free, int(total * share) - own), name=str(device), is_lazy=False)
    found = re.search(r"MemTotal:\s*(\d+) kB", _read(Path("/proc/meminfo")))
    amounts = [int(found[1]) * 1024] if found else []
    limit = _read(CGROUP / "memory.max").strip()
    if limit.isdigit():
        amounts.append(int(limit))
    return Memory(total=min(amounts, default=None), name="this machine", is_lazy=True)


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


def _read(file: Path) -> str:
    """Text of a file; empty if there is none."""
    try:
        return file.read_text()
    except OSError:
        return ""
