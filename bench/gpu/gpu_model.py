"""Llama-shaped models with random weights for timings, and the bytes that a pass of one must read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.models.transformers_engine import TransformersEngine

SHAPES: dict[str, dict[str, object]] = {
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
    },
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": True,
    },
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
}
"""Sizes of Llama 3.2 1B and Llama 3.1 8B, and one that any machine runs."""

MAX_SCRATCH = 320
"""As the service has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a timed engine gets."""

    shape: str
    """A key of `SHAPES`."""

    device: torch.device
    dtype: torch.dtype

    num_slots: int
    max_context: int


def build_engine(room: Room, *, cuda_graphs: str) -> tuple[TransformersEngine, PreTrainedModel]:
    """An engine, and its model; the weights are the same every time."""
    config = AutoConfig.for_model(
        "llama",
        **SHAPES[room.shape],
        max_position_embeddings=room.max_context,
        # Attention matters to the logits then, as in a trained model.
        initializer_range=0.05 if room.shape != "tiny" else 0.2,
        pad_token_id=None,
    )
    torch.manual_seed(0)
    with torch.device(room.device):
        # transformers leaves this one untyped.
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=room.dtype)  # type: ignore[no-untyped-call]
    settings = EngineSettings(
        model=room.shape,
        num_slots=room.num_slots,
        max_context=room.max_context,
        max_scratch=MAX_SCRATCH,
        cuda_graphs=cuda_graphs,  # type: ignore[arg-type]  # one of the three literals
    )
    name = f"random {room.shape}"
    return TransformersEngine(model, settings, name=name, fingerprint="random"), model


def num_parameters(model: PreTrainedModel) -> int:
    """Parameters, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def least_bytes(model: PreTrainedModel, *, context: int, sessions: int) -> int:
    """Bytes that a pass must read: every weight once but the looked-up embeddings, and the sessions' keys and values."""
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    embeddings = cast(torch.nn.Embedding, model.get_input_embeddings()).weight
    if not model.config.tie_word_embeddings:
        weights -= embeddings.numel() * embeddings.element_size()
    config = model.config
    row = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return int(weights + sessions * context * row * embeddings.element_size())
