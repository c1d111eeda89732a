"""What a model's configuration says: whether it can be served, how long its context is, how its texts end."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from outrider.actors.engine.attention import UnsupportedModel
from outrider.actors.engine.settings import EngineSettings

FULL_LAYER_TYPES = frozenset({"full_attention", "sliding_attention"})
"""Layer types of transformers whose rows depend on earlier rows through keys and values only."""


def text_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """The language model's part of a configuration."""
    return config.get_text_config(decoder=True)


def check_config(config: PreTrainedConfig, *, name: str) -> None:
    """Refuses what a configuration alone shows to be unsupported.

    Raises:
        UnsupportedModel: An encoder-decoder model, or layers that keep another state than keys and values.
    """
    if config.is_encoder_decoder:
        raise UnsupportedModel(
            f"{name} is an encoder-decoder model ({config.model_type}); "
            "only decoder-only causal language models can be served"
        )
    layer_types = set(getattr(text_config(config), "layer_types", None) or ())
    if not layer_types <= FULL_LAYER_TYPES:
        raise UnsupportedModel(
            f"{name} ({config.model_type}) has layers of type "
            f"{', '.join(sorted(layer_types - FULL_LAYER_TYPES))}; "
            f"supported are {', '.join(sorted(FULL_LAYER_TYPES))}"
        )


def check_rope(config: PreTrainedConfig, *, name: str, max_context: int) -> None:
    """Refuses rotary embeddings whose angles depend on the length of the text so far.

    Raises:
        UnsupportedModel: Rows would have to be computed again when the text outgrows the model's original context.
    """
    text = text_config(config)
    parameters: dict[str, Any] = getattr(text, "rope_parameters", None) or {}
    nested = [each for each in parameters.values() if isinstance(each, dict)] or [parameters]
    for rope in nested:
        kind = rope.get("rope_type", "default")
        if kind not in {"dynamic", "longrope"}:
            continue
        original: int = (
            rope.get("original_max_position_embeddings")
            or getattr(text, "original_max_position_embeddings", None)
            or text.max_position_embeddings
        )
        if max_context > original:
            raise UnsupportedModel(
                f"{name} rescales positions beyond {original} tokens (rope type {kind!r}), which changes "
                f"rows that are cached already; set max_context to at most {original}"
            )


def context_limit(model: PreTrainedModel, settings: EngineSettings, *, name: str) -> int:
    """The greatest context that settings and model allow.

    Raises:
        ValueError: The settings ask for more than the model has, or neither says.
    """
    limit: int | None = getattr(text_config(model.config), "max_position_embeddings", None)
    if limit is not None and limit < 1:  # -1: no limit
        limit = None
    if settings.max_context is None:
        if limit is None:
            raise ValueError(f"{name} does not say how long its context is; set max_context")
        return limit
    if limit is not None and settings.max_context > limit:
        raise ValueError(
            f"max_context is {settings.max_context}, but {name} has a context of {limit}; "
            "lower max_context, or leave it out"
        )
    return settings.max_context


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """End-of-text token ids of a model, from its generation defaults or its configuration."""
    generation = getattr(model, "generation_config", None)
    ids: int | list[int] | None = getattr(generation, "eos_token_id", None)
    if ids is None:
        ids = getattr(text_config(model.config), "eos_token_id", None)
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)
