"""The weights of a Llama-shaped model as plain tensors, if it is one.

Products that read the same rows are joined: query, key and value, and gate and up. The joined weights are the model's own from
then on, its modules' weights are views of them, so nothing is held twice and the modules go on working.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from outrider.actors.engine.models.llama_shape import is_llama_shaped, products_of
from outrider.actors.engine.models.products import Product, joined, product_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LlamaLayer:
    """One layer."""

    attention_norm: Tensor
    qkv: Product
    """Queries, keys and values of all heads, one after another."""
    head_norms_TD: Tensor | None
    """Weights of the norms of single heads, for each query and key head; None without."""
    out: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product
    window: int | None
    """Width of the sliding window in positions; None for none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LlamaWeights:
    """A model."""

    embedding: Tensor
    layers: Sequence[LlamaLayer]
    last_norm: Tensor
    head: Product
    rotary: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    """Cosines and sines of positions (1, M), in the type and on the device of the first argument."""
    num_heads: int
    num_key_heads: int
    head_dim: int
    eps: float
    scaling: float

    @property
    def num_bytes(self) -> int:
        """What a pass reads of it, but for the norms."""
        products = [self.head]
        for layer in self.layers:
            products += [layer.qkv, layer.out, layer.gate_up, layer.down]
        return sum(int(product.keywords["mat2"].nbytes) for product in products)


def llama_weights(model: PreTrainedModel, windows: Sequence[int | None]) -> LlamaWeights | None:
    """Takes a model's weights, and joins some; None, and nothing changed, if it is not of this shape.

    Args:
        model: On its device, with its weights in their final type.
        windows: Sliding window of each layer, None for none.
    """
    config: Any = model.config
    if not is_llama_shaped(model):
        return None
    body: Any = model.model
    attention = body.layers[0].self_attn
    return LlamaWeights(
        embedding=body.embed_tokens.weight.detach(),
        layers=[
            LlamaLayer(
                attention_norm=layer.input_layernorm.weight.detach(),
                head_norms_TD=_head_norms(layer.self_attn),
                mlp_norm=layer.post_attention_layernorm.weight.detach(),
                window=window,
                **_products(layer),
            )
            for layer, window in zip(body.layers, windows, strict=True)
        ],
        last_norm=body.norm.weight.detach(),
        head=product_of(model.lm_head),
        rotary=body.rotary_emb,
        num_heads=config.num_attention_heads,
        num_key_heads=config.num_key_value_heads,
        head_dim=attention.head_dim,
        eps=config.rms_norm_eps,
        scaling=attention.scaling,
    )


def _products(layer: Any) -> dict[str, Product]:
    query, key, value, out, gate, up, down = products_of(layer)
    return {
        "qkv": product_of(joined(query, key, value)),
        "out": product_of(out),
        "gate_up": product_of(joined(gate, up)),
        "down": product_of(down),
    }


def _head_norms(attention: Any) -> Tensor | None:
    if not hasattr(attention, "q_norm"):
        return None
    config = attention.config
    query, key = attention.q_norm.weight.detach(), attention.k_norm.weight.detach()
    return torch.cat(
        (
            query.expand(config.num_attention_heads, -1),
            key.expand(config.num_key_value_heads, -1),
        )
    )
