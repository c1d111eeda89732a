"""Small random models of the causal language models that transformers has, made from their configuration classes.

A configuration class knows its own defaults, so that a family is made small by what most have in common: sizes by name. What a
family needs beyond that is in `EXTRA`.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

VOCAB_SIZE = 61
CONTEXT = 64
WINDOW = 16
MAX_PARAMETERS = 20_000_000

SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "n_embd": 32,
    "d_model": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 24,
    "ffn_hidden_size": 48,
    "ffn_dim": 48,
    "shared_expert_intermediate_size": 24,
    "shared_intermediate_size": 24,
    "intermediate_size_mlp": 48,
    "num_hidden_layers": 4,
    "n_layer": 4,
    "n_layers": 4,
    "num_layers": 4,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "n_positions": CONTEXT,
    "max_seq_len": CONTEXT,
    "sliding_window": WINDOW,
    "attention_chunk_size": WINDOW,
    "window_size": WINDOW,
    "floor_scale": WINDOW,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "rotary_dim": 8,
    "is_decoder": True,
    "initializer_range": 0.2,
    "init_std": 0.2,
    "initializer_factor": 4.0,
    "use_sliding_window": True,
    "max_window_layers": 2,
    "word_embed_proj_dim": 32,
    "vocab_size_per_layer_input": VOCAB_SIZE,
    "hidden_size_per_layer_input": 8,
    "query_pre_attn_scalar": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}
"""What a configuration gets of these, if it has such a field."""

_EVERY_SECOND = ["sliding_attention", "full_attention"] * 2
_PADDED: dict[str, Any] = {"pad_token_id": 0, "max_position_embeddings": CONTEXT + 1}

EXTRA: dict[str, dict[str, Any]] = {
    **{
        family: {"num_key_value_heads": 4}
        for family in (
            "axk1",
            "axk2",
            "deepseek_v2",
            "deepseek_v3",
            "deepseek_v32",
            "glm4_moe_lite",
            "glm_moe_dsa",
            "minicpm3",
            "youtu",
        )
    },
    **{
        family: _PADDED
        for family in (
            "camembert",
            "data2vec-text",
            "modernbert-decoder",
            "roberta",
            "roberta-prelayernorm",
            "xlm-roberta",
            "xlm-roberta-xl",
        )
    },
    "bamba": {"mamba_n_heads": 8, "mamba_d_head": 8},
    "dots1": {"num_key_value_heads": 2, "moe_intermediate_size": 24, "n_shared_experts": 1},
    "gemma3n_text": {"layer_types": _EVERY_SECOND, "num_kv_shared_layers": 2},
    "gemma4_text": {"layer_types": _EVERY_SECOND, "num_kv_shared_layers": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"mamba_n_heads": 8, "mamba_d_head": 8},
    "kimi_linear": {"num_experts": 16},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8},
    "reformer": {"axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16]},
    "zaya": {"num_experts_per_tok": 1},
}
"""What single families need."""

LEFT_OUT = frozenset(
    {
        "bailing_hybrid",
        "beam",
        "blt",
        "cohere_compass_text",
        "dbrx",
        "dots3_note_text",
        "gemma4_assistant",
        "git",
        "longcat_flash",
        "moshi",
        "phi4_multimodal",
        "qwen4_exp_text",
        "trocr",
        "xlm",
        "xmod",
        "zamba",
        "zamba2",
    }
)
"""Families that these sizes do not make small, or that want more than text."""

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma3_text, bidirectional": ("gemma3_text", {"use_bidirectional_attention": True}),
    "gemma3n_text, no shared keys": ("gemma3n_text", {"num_kv_shared_layers": 0}),
    "gemma4_text, no shared keys": ("gemma4_text", {"num_kv_shared_layers": 0}),
    "llama4_text, full layers only": (
        "llama4_text",
        {"layer_types": ["full_attention"] * 4, "no_rope_layers": [1, 1, 1, 0]},
    ),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "olmoe, sliding_window set": ("olmoe", {"sliding_window": WINDOW}),
    "phimoe, no window": ("phimoe", {"sliding_window": None}),
}
"""Families with other options than by default: name, (family, options)."""


def names() -> list[str]:
    """Every family of text alone, and the variants, by name."""
    found = [
        family
        for family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        if family not in LEFT_OUT and _is_text(CONFIG_MAPPING[family]())
    ]
    return sorted([*found, *VARIANTS])


def _is_text(config: PreTrainedConfig) -> bool:
    """Whether a configuration is that of a language model alone."""
    return config.get_text_config(decoder=True) is config and not config.is_encoder_decoder


def config_of(name: str) -> PreTrainedConfig:
    """A small configuration of a family or variant.

    Raises:
        Exception: Whatever the configuration class thinks of it.
    """
    family, options = VARIANTS.get(name, (name, {}))
    kind = CONFIG_MAPPING[family]
    fields = kind().to_dict()
    sizes = {field: value for field, value in SIZES.items() if field in fields}
    given = {**sizes, **EXTRA.get(family, {}), **options}
    config: PreTrainedConfig = kind(**given)
    return config


def model_of(name: str) -> PreTrainedModel:
    """A random model of a family or variant.

    Raises:
        Exception: Whatever transformers thinks of it.
        MemoryError: It is not small: `SIZES` lacks a field.
    """
    config = config_of(name)
    with torch.device("meta"):
        # transformers leaves this one untyped.
        empty: PreTrainedModel = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    count = empty.num_parameters()
    if count > MAX_PARAMETERS:
        raise MemoryError(f"a model of {name} has {count} parameters")
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, attn_implementation="eager"
    )
    model.train(False)
    return model
