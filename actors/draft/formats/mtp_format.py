"""Modules of multi-token prediction (DeepSeek-AI 2024, arXiv 2412.19437; FastMTP, arXiv 2509.18362), as the library `speculators` writes them.

What comes with a model in its own folder is a layer of that model's family. Those of DeepSeek and Qwen3-Next are mixtures of experts or have gates, which
no draft net here has; nor do those targets run here (docs/models.md).
"""

from __future__ import annotations

import re

from outrider.actors.draft.checkpoints.block_fields import MOST_CONTEXT
from outrider.actors.draft.checkpoints.checkpoint_format import (
    Checkpoint,
    CheckpointFormat,
    TargetShape,
    Translation,
    UnfitCheckpoint,
)
from outrider.actors.draft.checkpoints.layer_fields import layer_fields, truth, whole
from outrider.actors.draft.checkpoints.library_fields import (
    kind_of,
    layers_of,
    proposed,
    unused,
)
from outrider.actors.draft.checkpoints.single_layer import layer_tensors

LAYER = "mtp_layers.0"
STEPS = 3
"""Tokens in a row that the library trains for, where its files do not say."""

NATIVE = re.compile(r"(^|\.)(mtp|mtp_layers|eh_proj)\.")
"""Names of tensors of a module as models bring it: Qwen's and DeepSeek-V4's, MiMo's, and those of DeepSeek-V3 and GLM."""

FIRST_BLOCK = re.compile(r"(^|\.)layers\.0\.")
"""Names of tensors that a whole model has beside those."""

RENUMBERED = re.compile(r"^(model\.)?layers\.0\.eh_proj\.")
"""A module that SGLang's script takes out of DeepSeek-V3 (NextN): it has the number of a first block."""

PLAIN = ("llama", "qwen3")
"""Families of layers that are norm, attention, norm, gated product, and no more."""


def _is_mtp(checkpoint: Checkpoint) -> bool:
    return kind_of(checkpoint) == "mtp"


def _is_native(checkpoint: Checkpoint) -> bool:
    config = checkpoint.config
    if kind_of(checkpoint) is not None:
        return False
    says = "num_nextn_predict_layers" in config or any(
        "mtp" in one.lower() for one in (*checkpoint.architectures, str(config.get("model_type")))
    )
    if not says:
        return False
    names = checkpoint.shapes
    if any(RENUMBERED.search(name) for name in names):
        return True
    has_module = any(NATIVE.search(name) for name in names)
    others = (name for name in names if not NATIVE.search(name))
    return has_module and not any(FIRST_BLOCK.search(name) for name in others)


def _native(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    raise UnfitCheckpoint(
        "its layer is of the target's own family, and its files do not say what is fed back; convert it with the "
        "library speculators, whose format says both"
    )


def _mtp(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config, shapes = checkpoint.config, checkpoint.shapes
    layers = layers_of(checkpoint)
    if (family := layers.get("model_type")) not in PLAIN:
        raise UnfitCheckpoint(
            f"its layer is one of {family}; those of {', '.join(PLAIN)} run here, without experts and gates"
        )
    if (number := config.get("num_nextn_predict_layers", 1)) != 1:
        raise UnfitCheckpoint(f"it has {number} modules; one that is applied again runs here")
    fields = layer_fields(layers)
    blocks = fields.pop("num_layers")
    if target is not None and blocks != target.num_blocks:
        raise UnfitCheckpoint(
            f"it reads what comes out of {blocks} blocks, and the target {target.name} has {target.num_blocks}"
        )
    has_norms = f"{LAYER}.self_attn.q_norm.weight" in shapes
    has_biases = truth(layers, "attention_bias")
    tensors = layer_tensors(LAYER, has_norms=has_norms, has_biases=has_biases)
    tensors |= {
        "midlayer.attention_layernorm.weight": f"{LAYER}.input_layernorm.weight",
        "midlayer.input_layernorm.weight": f"{LAYER}.token_layernorm.weight",
        "midlayer.hidden_norm.weight": f"{LAYER}.hidden_layernorm.weight",
        "midlayer.input_proj.weight": f"{LAYER}.input_proj.weight",
        "norm.weight": f"{LAYER}.final_layernorm.weight",
    }
    own = {kind: f"{kind}.weight" for kind in ("embed_tokens", "lm_head")}
    own = {kind: name for kind, name in own.items() if name in shapes}
    return Translation(
        config={
            "model_type": "eagle3",
            **fields,
            "vocab_size": whole(layers, "vocab_size"),
            "target_width": fields["width"],
            "taps": [blocks],
            "num_steps": proposed(checkpoint) or STEPS,
            "window": MOST_CONTEXT,
            "owns_embedding": "embed_tokens" in own,
            "owns_head": "lm_head" in own,
            "has_head_norms": has_norms,
            "has_biases": has_biases,
            "norm_output": True,
            "projects": True,
            "eos_token_ids": list(target.eos_token_ids) if target is not None else [],
        },
        tensors=tensors | {name: name for name in own.values()},
        ignored=unused(checkpoint),
    )


SPECS = (
    CheckpointFormat(
        name="mtp_speculators",
        title="a module of multi-token prediction (speculators)",
        told_by="`speculators_model_type: mtp`",
        model_type="eagle3",
        recognises=_is_mtp,
        translate=_mtp,
    ),
    CheckpointFormat(
        name="mtp_native",
        title="a module of multi-token prediction as it comes with its model",
        told_by="tensors `mtp.*`, `mtp_layers.*` or `eh_proj`, and no first block of a model",
        model_type="eagle3",
        recognises=_is_native,
        translate=_native,
    ),
)
