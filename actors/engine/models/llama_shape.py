"""Whether a model is of the shape that `llama_forward.py` writes out: told by its parts, since a name promises nothing.

A class of a model's own repository, a submodule that is not known, a linear layer of another class (an adapter, a quantised
one), a bias on one of two products that are joined: each makes the engine run the modules instead.
"""

from __future__ import annotations

from typing import Any

from torch import nn

MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Models of transformers whose layers are: norm, attention over rotated heads, sum, norm, gated product, sum."""

LAYER_PARTS = frozenset({"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"})
"""What a layer consists of."""

ATTENTION_PARTS = (
    frozenset({"q_proj", "k_proj", "v_proj", "o_proj"}),
    frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"}),
)
"""What attention consists of: without norms of single heads, and with."""

MLP_PARTS = frozenset({"gate_proj", "up_proj", "down_proj", "act_fn"})
"""What the gated product consists of."""


def is_llama_shaped(model: Any) -> bool:
    """Whether every part of a causal language model is one that we know, and there are no others."""
    config = model.config
    known = type(model).__module__.startswith(f"transformers.models.{config.model_type}.")
    if config.model_type not in MODEL_TYPES or not known:
        return False
    if _parts(model) != {"model", "lm_head"}:
        return False
    if _parts(model.model) != {"embed_tokens", "layers", "norm", "rotary_emb"}:
        return False
    if config.hidden_act != "silu" or type(model.lm_head) is not nn.Linear:
        return False
    if model.lm_head.bias is not None:
        return False
    return all(_layer_fits(layer, config) for layer in model.model.layers)


def _layer_fits(layer: Any, config: Any) -> bool:
    if _parts(layer) != LAYER_PARTS or _parts(layer.mlp) != MLP_PARTS:
        return False
    attention = layer.self_attn
    if _parts(attention) not in ATTENTION_PARTS:
        return False
    products = products_of(layer)
    if any(type(each) is not nn.Linear for each in products):
        return False
    query, key, value, _, gate, up, _ = products
    dim = attention.head_dim
    heads = (config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads)
    return (
        tuple(each.out_features for each in (query, key, value)) == tuple(dim * n for n in heads)
        and len({each.bias is None for each in (query, key, value)}) == 1
        and (gate.bias is None) == (up.bias is None)
        and attention.scaling == dim**-0.5
    )


def _parts(module: nn.Module) -> frozenset[str]:
    return frozenset(name for name, _ in module.named_children())


def products_of(layer: Any) -> tuple[nn.Linear, ...]:
    """Query, key, value, attention's output, gate, up and down of a layer."""
    attention, mlp = layer.self_attn, layer.mlp
    return (
        attention.q_proj,
        attention.k_proj,
        attention.v_proj,
        attention.o_proj,
        mlp.gate_proj,
        mlp.up_proj,
        mlp.down_proj,
    )
