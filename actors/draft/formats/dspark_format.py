"""DSpark (DeepSeek-AI and Peking University 2026): DeepSpec's files, DFlash's of the same code among them, SpecForge's and ModelOpt's, and those of the
library `speculators`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.actors.draft.checkpoints.block_fields import (
    DEEPSPEC,
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
from outrider.actors.draft.checkpoints.layer_fields import part, truth, unread, whole, wholes
from outrider.actors.draft.checkpoints.library_fields import (
    first_slot_of,
    kind_of,
    layers_of,
    tables_beside,
)
from outrider.actors.draft.formats.dflash_format import FIELDS, project_taps

SPECFORGE_FIELDS = (
    *FIELDS,
    "markov_rank",
    "markov_head_type",
    "enable_confidence_head",
    "confidence_head_with_markov",
    "confidence_head_alpha",
    "use_confidence_head",
    "shift_label",
)
"""Fields of `dflash_config` that are read, or that only training reads."""

SPELLINGS = (
    ("markov_head.", "logit_head.markov_head."),
    ("confidence_head.", "logit_head.confidence_head."),
    ("markov_head.", ""),
    ("confidence_head.proj.", "confidence_proj."),
)
"""How names of the heads' tensors begin here, and elsewhere: in SpecForge's first files, and in ModelOpt's."""


def _is_dspark(checkpoint: Checkpoint) -> bool:
    if has_heads(checkpoint) and "target_layer_ids" in part(checkpoint.config, "dflash_config"):
        # SpecForge's, whatever it is called.
        return False
    return any(name.endswith("DSparkModel") for name in checkpoint.architectures) or (
        "dspark_target_layer_ids" in checkpoint.config
    )


def _is_specforge(checkpoint: Checkpoint) -> bool:
    is_another = kind_of(checkpoint) is not None or _is_dspark(checkpoint)
    return not is_another and has_heads(checkpoint)


def _is_library_dspark(checkpoint: Checkpoint) -> bool:
    return kind_of(checkpoint) == "dspark"


def _dspark(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config = checkpoint.config
    if DEEPSPEC not in checkpoint.architectures:
        said = ", ".join(checkpoint.architectures) or "nothing"
        raise UnfitCheckpoint(f"architectures says {said}; of this family {DEEPSPEC} runs here")
    fields = {**block_fields(config, config, target), **_heads(config, is_said=True)}
    # -1 is the output of the embedding, and k that of block k.
    taps = [one + 1 for one in wholes(config, "target_layer_ids")]
    return Translation(
        config={**fields, **mask_of(checkpoint), "taps": taps},
        tensors=block_tensors(fields, checkpoint),
        embedding="embed_tokens.weight",
        head="lm_head.weight",
    )


def _specforge(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config = checkpoint.config
    own = part(config, "dflash_config")
    # Older ones have the heads' fields beside that object.
    merged = {**config, **{name: value for name, value in own.items() if value is not None}}
    fields = {**block_fields(config, merged, target), **_heads(merged, is_said=True)}
    taps, notes = project_taps(merged, fields["num_layers"], target)
    scale, scaled = scale_of_rows(checkpoint, merged, target)
    return Translation(
        config={**fields, **mask_of(checkpoint), **scale, "taps": taps},
        tensors={name: _spelt(name, checkpoint) for name in block_tensors(fields, checkpoint)},
        **tables_beside(checkpoint, fields["vocab_size"]),
        notes=(*notes, *scaled, *unread(config, "dflash_config", SPECFORGE_FIELDS)),
    )


def _spelt(name: str, checkpoint: Checkpoint) -> str:
    """How a file spells the name of a tensor; the usual name, if there is none."""
    others = (
        theirs + name.removeprefix(ours) for ours, theirs in SPELLINGS if name.startswith(ours)
    )
    return next((one for one in (name, *others) if one in checkpoint.shapes), name)


def _library_dspark(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config = checkpoint.config
    layers = layers_of(checkpoint)
    fields = {**block_fields(layers, config, target), **_heads(config, is_said=False)}
    first_slot, notes = first_slot_of(checkpoint, is_unsaid=True)
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


def _heads(config: Mapping[str, Any], *, is_said: bool) -> dict[str, Any]:
    """Fields of the heads on a block.

    Args:
        config: Of the checkpoint.
        is_said: Whether its files say all of it; else what they leave out is the library's default.
    """
    rank = whole(config, "markov_rank", None if is_said else 256)
    kind = config.get("markov_head_type", "vanilla")
    if rank and kind not in ("vanilla", "gated"):
        raise UnfitCheckpoint(
            f"markov_head_type is {kind!r}, whose state depends on the whole path; vanilla and gated ones run here"
        )
    # ModelOpt's, which always reads the token.
    is_there = truth(config, "use_confidence_head")
    return {
        "rank": rank,
        "markov": kind if rank else "vanilla",
        "has_confidence": truth(config, "enable_confidence_head", default=is_there or not is_said),
        "confidence_reads_token": truth(
            config, "confidence_head_with_markov", default=is_there or not is_said
        ),
    }


SPECS = (
    CheckpointFormat(
        name="dspark_deepspec",
        title="a DSpark checkpoint (DeepSpec)",
        told_by=f"`architectures: {DEEPSPEC}`; with `markov_rank: 0` it is DFlash",
        model_type="dspark",
        recognises=_is_dspark,
        translate=_dspark,
    ),
    CheckpointFormat(
        name="dspark_specforge",
        title="a DSpark checkpoint (SpecForge, ModelOpt)",
        told_by="`architectures: DSparkDraftModel`; `projector_type: dspark` in `dflash_config`, or layers there beside DeepSpec's name",
        model_type="dspark",
        recognises=_is_specforge,
        translate=_specforge,
    ),
    CheckpointFormat(
        name="dspark_speculators",
        title="a DSpark checkpoint (speculators)",
        told_by="`speculators_model_type: dspark`",
        model_type="dspark",
        recognises=_is_library_dspark,
        translate=_library_dspark,
    ),
)
