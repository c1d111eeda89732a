"""Numbers for checkpoints and inputs, by name: the same wherever they are made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tests.actors.draft import reference_nets as plain
from tests.actors.draft.reference_nets import BLOCKS, VOCAB, WIDTH
from torch import Tensor

FOLDER = Path(__file__).parent / "recorded"

DRAFTED = [1, 2, 5, 8, 13, 21]
"""Token ids of a reduced head."""

PAIRS = 4
"""Positions whose states are known, where a token is paired with each."""


def numbers(name: str, shape: Sequence[int], size: float = 0.5) -> Tensor:
    """Normal numbers for a tensor, float32."""
    seed = [*name.encode(), *shape]
    drawn = np.random.default_rng(seed).normal(size=tuple(shape))
    return torch.from_numpy((size * drawn).astype(np.float32))


def tensor(name: str, shape: Sequence[int]) -> Tensor:
    """What stands in a file by a name."""
    if name == "d2t":
        return plain.offsets(DRAFTED)
    return plain.members(DRAFTED) if name == "t2d" else numbers(name, shape)


def states(count: int, taps: int) -> Tensor:
    """Of a target, [T, taps, D]."""
    return numbers("states", (count, taps, WIDTH), size=1.0)


def write_target(folder: Path) -> str:
    """A target's folder, as far as a drafter reads it: its shape and its tables."""
    folder.mkdir(parents=True)
    config = {"model_type": "llama", "vocab_size": VOCAB, "hidden_size": WIDTH}
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": BLOCKS}))
    names = {"model.embed_tokens.weight": "embed_tokens.weight", "lm_head.weight": "lm_head.weight"}
    tables = {there: tensor(name, (VOCAB, WIDTH)) for there, name in names.items()}
    save_file(tables, folder / "model.safetensors")
    return str(folder)


def write_checkpoint(
    folder: Path, config: Mapping[str, object], shapes: Mapping[str, Sequence[int]]
) -> Path:
    """A checkpoint of a configuration and tensors of these shapes."""
    return plain.write(folder, config, {name: tensor(name, one) for name, one in shapes.items()})
