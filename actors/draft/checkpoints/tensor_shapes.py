"""The shape that each tensor of a checkpoint must have, by what its configuration says. Without torch, and before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.actors.draft.checkpoints.checkpoint_format import Translation, UnfitCheckpoint

Shape = tuple[int, ...]

LAYER: Mapping[str, tuple[str, ...]] = {
    "self_attn.q_proj.weight": ("queries", "read"),
    "self_attn.k_proj.weight": ("keys", "read"),
    "self_attn.v_proj.weight": ("keys", "read"),
    "self_attn.o_proj.weight": ("width", "queries"),
    "self_attn.q_proj.bias": ("queries",),
    "self_attn.k_proj.bias": ("keys",),
    "self_attn.v_proj.bias": ("keys",),
    "self_attn.o_proj.bias": ("width",),
    "self_attn.q_norm.weight": ("head_dim",),
    "self_attn.k_norm.weight": ("head_dim",),
    "mlp.gate_proj.weight": ("inner", "width"),
    "mlp.up_proj.weight": ("inner", "width"),
    "mlp.down_proj.weight": ("width", "inner"),
    "input_layernorm.weight": ("width",),
    "post_attention_layernorm.weight": ("width",),
    "hidden_norm.weight": ("width",),
    "norm.weight": ("width",),
    "fc.weight": ("width", "fused"),
    "fc.bias": ("width",),
}
"""Sizes of what the nets of EAGLE-3 and of blocks have in common, by our names without numbers."""

NETS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "dspark": {
        **LAYER,
        "mask_embed": ("width",),
        "markov_head.markov_w1.weight": ("vocab_size", "rank"),
        "markov_head.markov_w2.weight": ("rows", "rank"),
        "markov_head.gate_proj.weight": ("rank", "gated"),
        "markov_head.gate_proj.bias": ("rank",),
        "confidence_head.proj.weight": ("one", "rated"),
        "confidence_head.proj.bias": ("one",),
    },
    "eagle3": {
        **LAYER,
        "embed_tokens.weight": ("vocab_size", "width"),
        "lm_head.weight": ("rows", "width"),
        "d2t": ("rows",),
        "input_norm.weight": ("fused",),
        "fc_norm.weight": ("target_width",),
        "attention_layernorm.weight": ("width",),
        "input_proj.weight": ("width", "pair"),
    },
    "mlp_speculator": {
        "first.weight": ("inner", "width"),
        "later.weight": ("inner", "inner"),
        "embeddings.weight": ("vocab_size", "inner"),
        "norms.weight": ("inner",),
        "norms.bias": ("inner",),
        "lm_heads.weight": ("rows", "inner"),
        "residuals.weight": ("width", "width"),
        "residuals.bias": ("width",),
    },
}
"""By `model_type` of our net. What stands in none of them is compared when the net is built."""


def check_shape(name: str, found: Shape, wanted: Shape) -> None:
    """Refuses a tensor of another shape.

    Raises:
        UnfitCheckpoint: Its shape is another.
    """
    if found != wanted:
        raise UnfitCheckpoint(f"{name} is {found}; {wanted} is needed")


def check_shapes(translation: Translation, shapes: Mapping[str, Shape]) -> None:
    """Compares what a file's header says of its tensors with what the configuration asks for.

    Args:
        translation: Of the checkpoint.
        shapes: Of all tensors that it names.

    Raises:
        UnfitCheckpoint: One is of another shape; the message names it and both.
    """
    config = translation.config
    net = NETS.get(config["model_type"])
    if net is None:
        return
    table = translation.draft_ids
    rows = config.get("num_drafted") or config["vocab_size"]
    if table and not config.get("num_drafted"):
        rows = (*shapes[table], 0)[0]
    sizes = _sizes(config, rows)
    for ours, name in translation.tensors.items():
        if (letters := net.get(_without_numbers(ours))) is not None:
            check_shape(name, shapes[name], tuple(sizes[one] for one in letters))
    width, vocab_size = sizes["width"], sizes["vocab_size"]
    for name, wanted in (
        (translation.embedding, (vocab_size, width)),
        (translation.head, (rows, width)),
        (table, (rows,)),
        (translation.draft_mask, (vocab_size,)),
    ):
        if name:
            check_shape(name, shapes[name], wanted)
    for name, first in translation.repeated.items():
        if name in shapes:
            check_shape(name, shapes[name], shapes[first])


def _sizes(config: Mapping[str, Any], rows: int) -> dict[str, int]:
    """What the words of the tables stand for, as far as a net has it."""
    width = config["width"]
    rank, projects = config.get("rank", 0), config.get("projects", False)
    target_width = config.get("target_width") or width
    heads = config.get("head_dim", 0)
    reads = 2 if config["model_type"] == "eagle3" and not projects else 1
    return {
        "one": 1,
        "rows": rows,
        "vocab_size": config["vocab_size"],
        "width": width,
        "target_width": target_width,
        "inner": config["inner"],
        "head_dim": heads,
        "queries": config.get("num_heads", 0) * heads,
        "keys": config.get("num_key_heads", 0) * heads,
        "read": reads * width,
        "pair": 2 * width,
        "fused": len(config.get("taps", ())) * target_width,
        "rank": rank,
        "gated": width + rank,
        "rated": width + (rank if config.get("confidence_reads_token", True) else 0),
    }


def _without_numbers(name: str) -> str:
    parts = [part for part in name.split(".") if not part.isdigit()]
    return ".".join(parts[1:] if parts[0] in ("layers", "midlayer") else parts)
