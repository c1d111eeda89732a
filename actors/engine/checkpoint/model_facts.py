"""What a model's configuration says: whether it can be served, how long its context is, what it takes, how its texts end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel

from outrider.actors.engine.attention.attention import UnsupportedModel
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.sizing import LEAST_CONTEXT, ModelFacts

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


def _unscaled_context(config: PreTrainedConfig) -> tuple[int, str] | None:
    """The context beyond which rotary embeddings change with the length of the text so far, and their kind; None if none do.

    Beyond it, rows would have to be computed again when the text outgrows the model's original context.
    """
    text = text_config(config)
    parameters: dict[str, Any] = getattr(text, "rope_parameters", None) or {}
    nested = [each for each in parameters.values() if isinstance(each, dict)] or [parameters]
    found = [
        (
            rope.get("original_max_position_embeddings")
            or getattr(text, "original_max_position_embeddings", None)
            or text.max_position_embeddings,
            rope["rope_type"],
        )
        for rope in nested
        if rope.get("rope_type") in {"dynamic", "longrope"}
    ]
    return min(found, default=None)


def context_limit(config: PreTrainedConfig, settings: EngineSettings, *, name: str) -> int:
    """The greatest context that settings and model allow: the one that is set, or the longest that the model can be served with.

    Raises:
        UnsupportedModel: The settings ask for a context in which the model rescales the positions of rows that are there already.
        ValueError: The settings ask for more than the model has, or for less than an engine needs, or neither says.
    """
    limit: int | None = getattr(text_config(config), "max_position_embeddings", None)
    if limit is not None and limit < 1:  # -1: no limit
        limit = None
    unscaled = _unscaled_context(config)
    asked = settings.max_context
    if asked is None:
        if limit is None:
            raise ValueError(f"{name} does not say how long its context is; set max_context")
        return limit if unscaled is None else min(limit, unscaled[0])
    if asked < LEAST_CONTEXT:
        raise ValueError(f"max_context is {asked}; it must be at least {LEAST_CONTEXT}")
    if limit is not None and asked > limit:
        raise ValueError(
            f"max_context is {asked}, but {name} has a context of {limit}; "
            "lower max_context, or leave it out"
        )
    if unscaled is not None and asked > unscaled[0]:
        raise UnsupportedModel(
            f"{name} rescales positions beyond {unscaled[0]} tokens (rope type {unscaled[1]!r}), which changes "
            f"rows that are cached already; set max_context to at most {unscaled[0]}"
        )
    return asked


def memory_facts(
    config: PreTrainedConfig, *, max_context: int, itemsize: int, weight_bytes: int
) -> ModelFacts:
    """What a model asks of memory, as its configuration tells.

    Args:
        config: Of the model.
        max_context: Longest text.
        itemsize: Bytes of a number in weights, keys and values.
        weight_bytes: Weights that take memory beside what is free.
    """
    text = text_config(config)
    # Models without attention have none of these; that they cannot be served is found elsewhere.
    layers, vocab_size = (
        max(_numbers(text, name), default=1) for name in ("num_hidden_layers", "vocab_size")
    )
    heads = [_heads(one) for one in _configs_of_layers(text, layers)]
    return ModelFacts(
        num_layers=layers,
        row_bytes=sum(2 * one.num_keys * one.head_dim * itemsize for one in heads),
        weight_bytes=weight_bytes,
        max_context=max_context,
        vocab_size=vocab_size,
        group=max(1, max(one.num_queries // one.num_keys for one in heads)),
        itemsize=itemsize,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heads:
    """Of the attention of one layer."""

    num_queries: int
    num_keys: int
    head_dim: int


def _heads(config: PreTrainedConfig) -> _Heads:
    """As a configuration tells; where it has several for its kinds of layers, the most."""
    queries, width = (
        max(_numbers(config, name), default=1) for name in ("num_attention_heads", "hidden_size")
    )
    return _Heads(
        num_queries=queries,
        num_keys=max(
            _numbers(config, "num_key_value_heads", "num_global_key_value_heads"), default=queries
        ),
        head_dim=max(_numbers(config, "head_dim", "global_head_dim"), default=width // queries),
    )


def _configs_of_layers(config: PreTrainedConfig, count: int) -> Sequence[PreTrainedConfig]:
    """What holds for each layer. From transformers 5.24 on a configuration whose layers differ does not tell what they differ in."""
    if getattr(config, "is_heterogeneous", False):
        own: Sequence[PreTrainedConfig] = config.per_layer_config
        return list(own)
    return [config] * count


def _numbers(config: PreTrainedConfig, *names: str) -> list[int]:
    """Values of those keys that the configuration has; a model of none or less than none is refused when it is loaded."""
    found = [getattr(config, name, None) for name in names]
    return [number for number in found if isinstance(number, int) and number > 0]


def eos_token_ids(model: PreTrainedModel) -> tuple[int, ...]:
    """End-of-text token ids of a model, from its generation defaults or its configuration. Some write -1 for none."""
    generation = getattr(model, "generation_config", None)
    ids: int | list[int] | None = getattr(generation, "eos_token_id", None)
    if ids is None:
        ids = getattr(text_config(model.config), "eos_token_id", None)
    if ids is None:
        return ()
    return tuple(token for token in ([ids] if isinstance(ids, int) else ids) if token >= 0)
