"""Medusa heads (Cai et al. 2024, arXiv 2401.10774): the project's own files, and those that serving engines have made of them.

Head k is residual blocks on the state that the target's own head reads, and an output layer, its own or the target's. It foresees the token k + 2 places
behind that state's, which is our stage k.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from outrider.actors.draft.checkpoints.checkpoint_format import (
    Checkpoint,
    CheckpointFormat,
    TargetShape,
    Translation,
    UnfitCheckpoint,
)
from outrider.actors.draft.checkpoints.layer_fields import number, truth

BLOCK = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.linear\.(weight|bias)")
HEAD = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.weight")
ENGINE_BLOCK = re.compile(r"(?:medusa_heads\.)?blocks\.(\d+)\.layers\.(\d+)\.(weight|bias)")
ENGINE_HEAD = re.compile(r"(?:medusa_heads\.)?lm_heads\.(\d+)\.weight")
SHARED_HEAD = ("lm_head.weight", "medusa_heads.lm_head.weight")


def _is_medusa(checkpoint: Checkpoint) -> bool:
    return "medusa_num_heads" in checkpoint.config


def _is_engine_medusa(checkpoint: Checkpoint) -> bool:
    config = checkpoint.config
    return config.get("model_type") == "medusa" or "MedusaModel" in checkpoint.architectures


def _medusa(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    if any("embed_tokens" in name for name in checkpoint.shapes):
        raise UnfitCheckpoint(
            "the file holds the whole model; serve that as the target and give the heads' own file as the drafter"
        )
    return _translation(checkpoint, target, BLOCK, HEAD)


def _engine_medusa(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    return _translation(checkpoint, target, ENGINE_BLOCK, ENGINE_HEAD)


def _translation(
    checkpoint: Checkpoint,
    target: TargetShape | None,
    block: re.Pattern[str],
    head: re.Pattern[str],
) -> Translation:
    shapes, config = checkpoint.shapes, checkpoint.config
    tensors: dict[str, str] = {}
    stages: set[int] = set()
    depths: set[int] = set()
    for name in shapes:
        if match := block.fullmatch(name):
            stage, depth, kind = int(match[1]), int(match[2]), match[3]
            stages.add(stage)
            depths.add(depth)
            tensors[f"residuals.{stage}.{depth}.{kind}"] = name
    heads = {int(match[1]): name for name in shapes if (match := head.fullmatch(name))}
    shared = next((name for name in SHARED_HEAD if name in shapes), "")
    if truth(config, "original_lm_head") and not shared:
        shared = heads.get(0, "")
        heads = {}
    stages |= heads.keys()
    if not stages or stages != set(range(len(stages))) or depths != set(range(len(depths))):
        raise UnfitCheckpoint(f"its tensors make no row of heads: {', '.join(sorted(shapes)[:4])}")
    said = config.get("medusa_num_heads", config.get("num_heads"))
    if type(said) is int and said > len(stages):
        # Fewer are not wrong: published files hold more than their configuration names.
        raise UnfitCheckpoint(f"it says {said} heads, and its tensors are of {len(stages)}")
    _check_alike(tensors, heads, len(stages))
    ids = next((name for name in shapes if name.split(".")[-1] == "token_map"), "")
    if shared:
        tensors["lm_heads.0.weight"] = shared
    tensors |= {f"lm_heads.{stage}.weight": name for stage, name in heads.items()}
    own = shared or heads.get(0, "")
    aside: dict[str, str] = {}
    if ids and own and shapes[own][:1] != shapes[ids][:1]:
        # vLLM takes the rows of the listed tokens when it loads such a file.
        aside[ids] = "the heads have rows for all of the target's tokens"
        ids = ""
    width = _width(checkpoint, own, tensors, target)
    return Translation(
        config={
            "model_type": "mlp_speculator",
            "vocab_size": _vocab_size(checkpoint, own, bool(ids), target),
            "width": width,
            "inner": width,
            "num_stages": len(stages),
            "tied": bool(shared) or not heads,
            "scaled": False,
            "reads_tokens": False,
            "feeds": "hidden",
            "num_residuals": len(depths),
            "residual_biases": any(name.endswith(".bias") for name in tensors),
            "logit_scale": number(config, "logit_scale", 1.0),
            "tables": "own" if own else "target",
            "eos_token_ids": list(target.eos_token_ids) if target is not None else [],
        },
        tensors=tensors,
        draft_ids=ids,
        has_absolute_ids=True,
        ignored=aside,
    )


def _check_alike(tensors: Mapping[str, str], heads: Mapping[int, str], count: int) -> None:
    """Every head has what another has.

    Raises:
        UnfitCheckpoint: One lacks something; the message says which and what.
    """
    parts = sorted({tuple(name.split(".")[2:]) for name in tensors})
    for stage in range(count):
        for depth, kind in parts:
            if f"residuals.{stage}.{depth}.{kind}" not in tensors:
                raise UnfitCheckpoint(
                    f"head {stage} lacks the {kind} of its block {depth}, which others have"
                )
        if heads and stage not in heads:
            raise UnfitCheckpoint(f"head {stage} lacks its output layer, which others have")


def _width(
    checkpoint: Checkpoint, own: str, tensors: dict[str, str], target: TargetShape | None
) -> int:
    names = [own] if own else [name for name in tensors.values() if name.endswith(".weight")]
    shape = checkpoint.shapes[names[0]]
    return shape[-1] if shape else 0


def _vocab_size(
    checkpoint: Checkpoint, own: str, is_reduced: bool, target: TargetShape | None
) -> int:
    said: Any = checkpoint.config.get("vocab_size")
    if own and not is_reduced:
        return (*checkpoint.shapes[own], 0)[0]
    if type(said) is int:
        return said
    if target is None:
        raise UnfitCheckpoint("its files do not say how many token ids there are; name the target")
    return target.vocab_size


SPECS = (
    CheckpointFormat(
        name="medusa",
        title="a Medusa checkpoint (FasterDecoding)",
        told_by="`medusa_num_heads`; `medusa_lm_head.pt` or `.safetensors`",
        model_type="mlp_speculator",
        recognises=_is_medusa,
        translate=_medusa,
    ),
    CheckpointFormat(
        name="medusa_vllm",
        title="a Medusa checkpoint (vLLM)",
        told_by="`model_type: medusa`",
        model_type="mlp_speculator",
        recognises=_is_engine_medusa,
        translate=_engine_medusa,
    ),
)
