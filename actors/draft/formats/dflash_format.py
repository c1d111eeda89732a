"""DFlash (arXiv 2602.06036): the project's own files, and those of the library `speculators`.

Layers are numbered by their output in the project's files, so one more in ours, and as ours in the library's. Slot 0 predicts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.actors.draft.checkpoints.block_fields import (
    block_fields,
    block_tensors,
    has_heads,
    mask_of,
    scale_of_rows,
)
from outrider.actors.draft.checkpoints.checkpoint_format import (
    Checkpoint,
    CheckpointFormat,
    TargetShape,
    Translation,
    UnfitCheckpoint,
)
from outrider.actors.draft.checkpoints.layer_fields import part, unread, whole, wholes
from outrider.actors.draft.checkpoints.library_fields import (
    first_slot_of,
    kind_of,
    layers_of,
    tables_beside,
)

FIELDS = (
    "target_layer_ids",
    "mask_token_id",
    "block_size",
    "input_embedding_scale",
    "output_multiplier",
    "final_logit_softcapping",
    "is_causal",
    "causal",
    "sliding_window_non_causal",
    "use_swa",
    "swa_window_size",
    "attention_mode",
    "attention_sink_bias",
    "projector_type",
)
"""Fields of `dflash_config` that are read, or that the names of tensors show."""


def _is_dflash(checkpoint: Checkpoint) -> bool:
    # Files of SpecForge's first versions have the name alone.
    is_named = any(name.endswith("DFlashDraftModel") for name in checkpoint.architectures)
    is_told = is_named or "dflash_config" in checkpoint.config
    return is_told and kind_of(checkpoint) is None and not has_heads(checkpoint)


def _is_library_dflash(checkpoint: Checkpoint) -> bool:
    return kind_of(checkpoint) in ("dflash", "dflash2")


def _dflash(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config = checkpoint.config
    own: Mapping[str, Any] = part(config, "dflash_config")
    _refuse_second(checkpoint)
    if (projector := own.get("projector_type")) not in (None, "dflash"):
        raise UnfitCheckpoint(
            f"projector_type is {projector!r}, a head whose state depends on the whole path; DFlash has no such head, "
            "and that of dspark runs here"
        )
    merged = {**config, **own}
    fields = block_fields(config, merged, target)
    taps, notes = project_taps(merged, fields["num_layers"], target)
    scale, scaled = scale_of_rows(checkpoint, merged, target)
    return Translation(
        config={**fields, **mask_of(checkpoint), **scale, "taps": taps, "first_slot": 1},
        tensors=block_tensors(fields, checkpoint),
        **tables_beside(checkpoint, fields["vocab_size"]),
        notes=(*notes, *scaled, *unread(config, "dflash_config", FIELDS)),
    )


def project_taps(
    config: Mapping[str, Any], num_layers: int, target: TargetShape | None
) -> tuple[list[int], tuple[str, ...]]:
    """The states that a block of so many layers reads, where the project's own files name them, by outputs, or leave them out, which is noted."""
    if config.get("target_layer_ids") is not None:
        return [one + 1 for one in wholes(config, "target_layer_ids")], ()
    blocks = whole(config, "num_target_layers", target.num_blocks if target else None)
    taps = [one + 1 for one in _usual_layers(blocks, num_layers)]
    return taps, (f"the target's layers, which its files do not name: after {taps} blocks",)


def _library_dflash(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config = checkpoint.config
    _refuse_second(checkpoint)
    layers = layers_of(checkpoint)
    fields = block_fields(layers, config, target)
    first_slot, notes = first_slot_of(checkpoint, is_unsaid=False)
    return Translation(
        config={
            **fields,
            **mask_of(checkpoint),
            "taps": wholes(config, "aux_hidden_state_layer_ids"),
            "first_slot": first_slot,
        },
        tensors=block_tensors(fields, checkpoint),
        **tables_beside(checkpoint, fields["vocab_size"]),
        notes=notes,
    )


def _refuse_second(checkpoint: Checkpoint) -> None:
    is_named = any("DFlash2" in name for name in checkpoint.architectures)
    if is_named or kind_of(checkpoint) == "dflash2":
        raise UnfitCheckpoint(
            "DFlash 2 has convolutions around its layers and a selector behind them, which are not there; take "
            "a DFlash or a DSpark checkpoint"
        )


def _usual_layers(num_blocks: int, num: int) -> list[int]:
    """Where the project taps a target, counted by outputs: evenly from block 1 to the fourth from the end."""
    if num == 1:
        return [num_blocks // 2]
    step = (num_blocks - 4) / (num - 1)
    return [round(1 + n * step) for n in range(num)]


SPECS = (
    CheckpointFormat(
        name="dflash",
        title="a DFlash checkpoint (z-lab)",
        told_by="`dflash_config`, or `architectures: DFlashDraftModel`",
        model_type="dspark",
        recognises=_is_dflash,
        translate=_dflash,
    ),
    CheckpointFormat(
        name="dflash_speculators",
        title="a DFlash checkpoint (speculators)",
        told_by="`speculators_model_type: dflash`",
        model_type="dspark",
        recognises=_is_library_dflash,
        translate=_library_dflash,
    ),
)
