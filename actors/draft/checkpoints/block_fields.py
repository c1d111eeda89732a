"""What DFlash's and DSpark's files have in common, of whichever project: the layers, the slots, and the names of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.actors.draft.checkpoints.checkpoint_format import (
    Checkpoint,
    TargetShape,
    UnfitCheckpoint,
)
from outrider.actors.draft.checkpoints.layer_fields import (
    count,
    layer_fields,
    number,
    part,
    truth,
    whole,
    windowed,
)
from outrider.actors.draft.checkpoints.tensor_files import MASK_TENSOR

MOST_CONTEXT = 2_048
"""Positions that a block sees, at most: what every slot of the drafter keeps room for. The released nets were trained on texts of 3,000 to 4,000
tokens, and would see all of a longer one; the window costs acceptance there and no token."""

LAYER = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "self_attn.q_norm",
    "self_attn.k_norm",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "input_layernorm",
    "post_attention_layernorm",
)
"""Parts of a layer, by the same names here and there."""

BIASED = LAYER[:4]

DEEPSPEC = "Qwen3DSparkModel"
"""What DeepSpec calls the net, and so do SGLang and vLLM."""


def has_heads(checkpoint: Checkpoint) -> bool:
    """Whether a folder says, as SpecForge writes it, that DSpark's heads are on the block.

    What is made of its files for SGLang and vLLM has their name of the net, and still an object that names the layers, which DeepSpec's own files lack.
    """
    own = part(checkpoint.config, "dflash_config")
    names = checkpoint.architectures
    is_named = any(name.endswith("DSparkDraftModel") for name in names)
    is_renamed = DEEPSPEC in names and "target_layer_ids" in own
    return is_named or is_renamed or own.get("projector_type") == "dspark"


def block_fields(
    layers: Mapping[str, Any], slots: Mapping[str, Any], target: TargetShape | None
) -> dict[str, Any]:
    """Fields of a block drafter's configuration.

    Args:
        layers: The configuration of the layers.
        slots: That of the block.
        target: The target's shape, for its end-of-text tokens.

    Raises:
        UnfitCheckpoint: Something is missing, or is computed in a way that is not there.
    """
    fields = layer_fields(layers)
    scale, cap = number(slots, "logit_scale", 1.0), slots.get("final_logit_softcapping")
    if scale != 1.0 and cap:
        raise UnfitCheckpoint(
            f"logit_scale is {scale:g}, behind final_logit_softcapping; logits are scaled before they are capped here"
        )
    return {
        "model_type": "dspark",
        **fields,
        "target_width": whole(slots, "target_hidden_size", fields["width"]),
        "vocab_size": whole(layers, "vocab_size"),
        "block": count(slots, "block_size"),
        **_sight(layers, slots, fields["num_layers"]),
        "rank": 0,
        "has_confidence": False,
        "normed_taps": False,
        "mask_token_id": whole(slots, "mask_token_id"),
        "has_biases": truth(layers, "attention_bias"),
        "embedding_scale": number(slots, "input_embedding_scale", 1.0),
        "logit_scale": number(slots, "output_multiplier", 1.0) * scale,
        "soft_cap": number(slots, "final_logit_softcapping") if cap else 0.0,
        "eos_token_ids": list(target.eos_token_ids) if target is not None else [],
    }


def mask_of(checkpoint: Checkpoint) -> dict[str, None]:
    """The mask's id is none where the files hold a row for it, which slots hold instead of that of the embedding."""
    return {"mask_token_id": None} if MASK_TENSOR in checkpoint.shapes else {}


def scale_of_rows(
    checkpoint: Checkpoint, slots: Mapping[str, Any], target: TargetShape | None
) -> tuple[dict[str, float], tuple[str, ...]]:
    """What rows of the embedding are multiplied by in files whose projects call the target's own, and a note where it is not 1.

    They call it as the target's model does, which scales in some families. A file that says a scale, or has an embedding, says all.
    """
    is_said = slots.get("input_embedding_scale") is not None
    if target is None or is_said or "embed_tokens.weight" in checkpoint.shapes:
        return {}, ()
    scale = target.embedding_scale
    note = (f"that rows of the embedding are multiplied by {scale:.4g}, as {target.name} does",)
    return {"embedding_scale": scale}, note if scale != 1.0 else ()


def _sight(layers: Mapping[str, Any], slots: Mapping[str, Any], num_layers: int) -> dict[str, Any]:
    """How far slots see, and in which layers none of the later ones of their block.

    Unless files say it, they do not where a layer has a window by `layer_types`, and do where `use_swa` gives all layers one.

    Raises:
        UnfitCheckpoint: Layers see unequally far.
    """
    kinds = windowed(layers)
    if kinds and len(kinds) < num_layers:
        raise UnfitCheckpoint(f"layer_types names {len(kinds)} layers, and it has {num_layers}")
    sliding = kinds[:num_layers] or [False] * num_layers
    window, all_slide = MOST_CONTEXT, truth(slots, "use_swa")
    if any(sliding) or all_slide:
        own = slots.get("swa_window_size") is not None
        size = whole(slots, "swa_window_size") if own else whole(layers, "sliding_window")
        if any(sliding) and not all(sliding) and size < window:
            raise UnfitCheckpoint(
                f"some of its layers have a sliding window of {size} and some have none; one window for all runs here"
            )
        window = min(window, size)
    both_ways = truth(slots, "sliding_window_non_causal")
    causal = [one and not both_ways for one in sliding]
    for name in ("causal", "is_causal"):
        if slots.get(name) is not None:
            causal = [truth(slots, name)] * num_layers
    return {
        "window": window,
        "is_causal": any(causal),
        "both_ways": [n for n, one in enumerate(causal) if not one] if any(causal) else [],
    }


def block_tensors(fields: Mapping[str, Any], checkpoint: Checkpoint) -> dict[str, str]:
    """The names of a block drafter's tensors, which are the same here and there, but for the mask's row (`mask_of`)."""
    names = ["fc.weight", "hidden_norm.weight", "norm.weight"]
    for layer in range(fields["num_layers"]):
        names += [f"layers.{layer}.{part}.weight" for part in LAYER]
        if fields["has_biases"]:
            names += [f"layers.{layer}.{part}.bias" for part in BIASED]
    if fields["rank"]:
        names += ["markov_head.markov_w1.weight", "markov_head.markov_w2.weight"]
        if fields.get("markov") == "gated":
            names += ["markov_head.gate_proj.weight", "markov_head.gate_proj.bias"]
    if fields["has_confidence"]:
        names += ["confidence_head.proj.weight", "confidence_head.proj.bias"]
    mask = {"mask_embed": MASK_TENSOR} if mask_of(checkpoint) else {}
    return {name: name for name in names} | mask
