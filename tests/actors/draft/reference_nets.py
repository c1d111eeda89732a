"""Draft nets as their papers write them, over the tensors of a file by their published names. Plain, and nothing of the product in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

Tensors = dict[str, Tensor]

VOCAB, WIDTH, BLOCKS = 24, 24, 4
HEADS, KEY_HEADS, DIM, INNER = 4, 2, 6, 20
THETA, EPS = 10_000.0, 1e-6

LAYERS: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": DIM,
    "intermediate_size": INNER,
    "hidden_act": "silu",
    "rms_norm_eps": EPS,
    "rope_theta": THETA,
    "max_position_embeddings": 512,
    "attention_bias": False,
}
"""What configurations say of a layer."""


@dataclass(frozen=True)
class Heads:
    """Random numbers with a seed of their own."""

    generator: torch.Generator

    def __call__(self, *shape: int, size: float = 0.5) -> Tensor:
        """A tensor."""
        return size * torch.randn(*shape, generator=self.generator)


def numbers(seed: int = 0) -> Heads:
    """A source of random tensors."""
    return Heads(torch.Generator().manual_seed(seed))


def target_folder(folder: Path, **changes: object) -> tuple[Path, Tensor, Tensor]:
    """A folder with what a drafter reads of a target: its shape, its embedding and its head."""
    folder.mkdir(parents=True)
    draw = numbers(99)
    embedding, head = draw(VOCAB, WIDTH, size=1.0), draw(VOCAB, WIDTH, size=1.0)
    config: dict[str, object] = {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "num_hidden_layers": BLOCKS,
    }
    config |= {"model_type": "llama", "eos_token_id": 3, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head}
    save_file(tensors, folder / "model.safetensors")
    return folder, embedding, head


def write(folder: Path, config: Mapping[str, object], tensors: Tensors, name: str = "") -> Path:
    """A checkpoint: safetensors, or a file of PyTorch's where a name says so."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if name and not name.endswith(".safetensors"):
        torch.save(tensors, folder / name)
    else:
        save_file(tensors, folder / (name or "model.safetensors"))
    return folder


def layer_weights(
    draw: Heads, prefix: str, *, reads: int = 1, norms: bool = True, biases: bool = False
) -> Tensors:
    """A decoder layer of so many widths of input."""
    read = reads * WIDTH
    found = {
        "self_attn.q_proj.weight": draw(HEADS * DIM, read),
        "self_attn.k_proj.weight": draw(KEY_HEADS * DIM, read),
        "self_attn.v_proj.weight": draw(KEY_HEADS * DIM, read),
        "self_attn.o_proj.weight": draw(WIDTH, HEADS * DIM),
        "mlp.gate_proj.weight": draw(INNER, WIDTH),
        "mlp.up_proj.weight": draw(INNER, WIDTH),
        "mlp.down_proj.weight": draw(WIDTH, INNER),
        "input_layernorm.weight": draw(WIDTH),
        "post_attention_layernorm.weight": draw(WIDTH),
    }
    if norms:
        found |= {f"self_attn.{one}_norm.weight": draw(DIM) for one in "qk"}
    if biases:
        for one, rows in (("q", HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS)):
            found[f"self_attn.{one}_proj.bias"] = draw(rows * DIM)
        found["self_attn.o_proj.bias"] = draw(WIDTH)
    return {f"{prefix}.{name}": value for name, value in found.items()}


def normed(values: Tensor, weight: Tensor) -> Tensor:
    """Division by the root mean square, and a scale."""
    return values / (values.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def turned(heads: Tensor, positions: Tensor, speeds: Tensor | None, gain: float) -> Tensor:
    """Rotary positions of heads [T, H, h]."""
    if speeds is None:
        speeds = THETA ** -(torch.arange(0, DIM, 2).double() / DIM)
    angles = positions[:, None].double() * speeds
    angles = torch.cat((angles, angles), dim=-1)[:, None]
    first, second = heads.chunk(2, dim=-1)
    other = torch.cat((-second, first), dim=-1)
    return heads * (angles.cos() * gain).float() + other * (angles.sin() * gain).float()


def attention(
    weights: Tensors,
    prefix: str,
    rows: Tensor,
    positions: Tensor,
    others: Tensor,
    other_positions: Tensor,
    seen: Tensor,
    *,
    speeds: Tensor | None = None,
    gain: float = 1.0,
) -> Tensor:
    """What rows [T, R] gather from others [A, R], as far as `seen` [T, A] allows."""

    def mapped(name: str, values: Tensor) -> Tensor:
        bias = weights.get(f"{prefix}.{name}_proj.bias")
        return F.linear(values, weights[f"{prefix}.{name}_proj.weight"], bias)

    queries = mapped("q", rows).view(-1, HEADS, DIM)
    keys = mapped("k", others).view(-1, KEY_HEADS, DIM)
    values = mapped("v", others).view(-1, KEY_HEADS, DIM)
    if f"{prefix}.q_norm.weight" in weights:
        queries = normed(queries, weights[f"{prefix}.q_norm.weight"])
        keys = normed(keys, weights[f"{prefix}.k_norm.weight"])
    queries = turned(queries, positions, speeds, gain)
    keys = turned(keys, other_positions, speeds, gain)
    gathered = []
    for head in range(HEADS):
        shared = head * KEY_HEADS // HEADS
        scores = queries[:, head] @ keys[:, shared].T / DIM**0.5
        shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        gathered.append(shares @ values[:, shared])
    return mapped("o", torch.cat(gathered, dim=-1))


def gated_product(
    weights: Tensors, prefix: str, rows: Tensor, function: Callable[[Tensor], Tensor] = F.silu
) -> Tensor:
    """The other half of a layer."""
    gate = function(rows @ weights[f"{prefix}.gate_proj.weight"].T)
    return (gate * (rows @ weights[f"{prefix}.up_proj.weight"].T)) @ weights[
        f"{prefix}.down_proj.weight"
    ].T


def block_weights(draw: Heads, *, layers: int, taps: int, biases: bool = False) -> Tensors:
    """DFlash's tensors."""
    found = {
        "fc.weight": draw(WIDTH, taps * WIDTH),
        "hidden_norm.weight": draw(WIDTH),
        "norm.weight": draw(WIDTH),
    }
    for number in range(layers):
        found |= layer_weights(draw, f"layers.{number}", biases=biases)
    return found


def block_states(
    weights: Tensors,
    embedding: Tensor,
    features: Tensor,
    anchor_token: int,
    *,
    block: int,
    mask_id: int,
    layers: int,
    causal: bool | list[bool] = False,
    window: int | None = None,
    speeds: Tensor | None = None,
    gain: float = 1.0,
    function: Callable[[Tensor], Tensor] = F.silu,
) -> Tensor:
    """DFlash, arXiv 2602.06036: a block behind T positions whose states [T, taps, D] are known; h [block, D]."""
    length = len(features)
    context = normed(features.flatten(1) @ weights["fc.weight"].T, weights["hidden_norm.weight"])
    slots = embedding[[anchor_token] + [mask_id] * (block - 1)]
    old, own = torch.arange(length), torch.arange(length, length + block)
    sees_old = torch.ones(block, length, dtype=torch.bool)
    if window is not None:
        sees_old &= old >= length - window
    sees_own = torch.ones(block, block, dtype=torch.bool)
    is_causal = [causal] * layers if isinstance(causal, bool) else causal
    for number in range(layers):
        seen = torch.cat((sees_old, sees_own.tril() if is_causal[number] else sees_own), dim=1)
        prefix = f"layers.{number}"
        rows = normed(slots, weights[f"{prefix}.input_layernorm.weight"])
        others = torch.cat((context, rows))
        places = torch.cat((old, own))
        slots = slots + attention(
            weights,
            f"{prefix}.self_attn",
            rows,
            own,
            others,
            places,
            seen,
            speeds=speeds,
            gain=gain,
        )
        inner = normed(slots, weights[f"{prefix}.post_attention_layernorm.weight"])
        slots = slots + gated_product(weights, f"{prefix}.mlp", inner, function)
    return normed(slots, weights["norm.weight"])


def offsets(ids: list[int]) -> Tensor:
    """EAGLE-3's d2t: what is added to a row's number."""
    return torch.tensor(ids) - torch.arange(len(ids))


def members(ids: list[int]) -> Tensor:
    """EAGLE-3's t2d."""
    mask = torch.zeros(VOCAB, dtype=torch.bool)
    mask[ids] = True
    return mask
