"""The first two versions of EAGLE (Li et al. 2024, arXiv 2401.15077 and 2406.16858), which share their files: told, to be refused with the reason.

Their only layer reads a map of a token and the target's last state side by side, has no first norm, and the target's own norm and head stand behind it.
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.actors.draft.checkpoints.checkpoint_format import (
    Checkpoint,
    CheckpointFormat,
    TargetShape,
    Translation,
    UnfitCheckpoint,
)
from outrider.actors.draft.checkpoints.library_fields import kind_of

LAYER = "layers.0.self_attn.q_proj.weight"
MAP, NORM = "fc.weight", "norm.weight"


def _is_eagle(checkpoint: Checkpoint) -> bool:
    config = checkpoint.config
    is_third = any("eagle3" in name.lower() for name in checkpoint.architectures)
    if is_third or kind_of(checkpoint) is not None or "draft_vocab_size" in config:
        return False
    if config.get("model_type") == "eagle":
        return True
    # The authors' files say that they are a language model of one layer.
    names = _names(checkpoint) if config.get("num_hidden_layers") == 1 else {}
    return MAP in names and LAYER in names and NORM not in names


def _names(checkpoint: Checkpoint) -> Mapping[str, tuple[int, ...]]:
    """Its tensors; none where they cannot be read: whoever loads it as a language model says why."""
    try:
        return checkpoint.shapes
    except UnfitCheckpoint:
        return {}


def _eagle(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    raise UnfitCheckpoint(
        "it foresees the target's last state instead of a token, as EAGLE and EAGLE-2 do; nets of EAGLE-3 run here"
    )


SPECS = (
    CheckpointFormat(
        name="eagle",
        title="a checkpoint of EAGLE or EAGLE-2 (SafeAILab)",
        told_by="`model_type: eagle`, or one layer, a tensor `fc.weight` and no `norm.weight`",
        model_type="eagle3",
        recognises=_is_eagle,
        translate=_eagle,
    ),
)
