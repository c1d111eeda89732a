"""EAGLE-3 (Li et al. 2025, arXiv 2503.01840): the authors' files, which others write too, DeepSpec's, and those of the library `speculators`.

Layers are numbered by their input in the authors' and the library's files, as ours, and by their output in DeepSpec's. In `eagle_config`, which SpecForge and
ModelOpt write, they are numbered by their output where they begin at 1: for a target of L blocks {1, L/2 - 1, L - 4} there are the authors' 2, L/2 and L - 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outrider.actors.draft.checkpoints.block_fields import BIASED, MOST_CONTEXT
from outrider.actors.draft.checkpoints.checkpoint_format import (
    Checkpoint,
    CheckpointFormat,
    TargetShape,
    Translation,
    UnfitCheckpoint,
)
from outrider.actors.draft.checkpoints.eagle_fields import (
    FIELDS,
    fuses,
    named_layers,
    norms_of,
    taps_of,
)
from outrider.actors.draft.checkpoints.layer_fields import (
    count,
    layer_fields,
    number,
    truth,
    unread,
    whole,
    wholes,
    windowed,
)
from outrider.actors.draft.checkpoints.library_fields import (
    kind_of,
    layers_of,
    proposed,
    unused,
)
from outrider.actors.draft.checkpoints.single_layer import layer_tensors

DEEPSPEC = "Qwen3Eagle3Model"
STEPS = 7
"""Tokens in a row that the authors' code trains for."""

OUTER = "model."
"""What names of the net's own tensors may begin with, which SGLang reads with and without it."""

LIBRARY_STEPS = 3
"""Likewise the library's, where its files do not say."""


def _is_eagle3(checkpoint: Checkpoint) -> bool:
    config = checkpoint.config
    if kind_of(checkpoint) is not None or config.keys() & {"target_layer_ids", "dflash_config"}:
        return False
    names = " ".join(checkpoint.architectures).lower()
    is_named = "eagle3" in names or "peagle" in names
    return is_named or ("draft_vocab_size" in config and "fc.weight" in checkpoint.shapes)


def _is_deepspec(checkpoint: Checkpoint) -> bool:
    return any(name.endswith("Eagle3Model") for name in checkpoint.architectures)


def _is_library(checkpoint: Checkpoint) -> bool:
    return kind_of(checkpoint) in ("eagle3", "peagle")


def _eagle3(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    _refuse_parallel(checkpoint)
    config = checkpoint.config
    taps: tuple[int | str, ...] = ("norm",)
    notes = unread(config, "eagle_config", FIELDS)
    if fuses(config):
        layers, counted = named_layers(config)
        taps, taken = taps_of(layers, target)
        notes = (*taken, *counted, *notes)
    is_mid = any(name.removeprefix(OUTER).startswith("midlayer.") for name in checkpoint.shapes)
    prefix = "midlayer" if is_mid else "layers.0"
    return _translation(
        checkpoint, config, target, taps=taps, num_steps=STEPS, prefix=prefix, notes=notes
    )


def _deepspec(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config = checkpoint.config
    if DEEPSPEC not in checkpoint.architectures:
        said = ", ".join(checkpoint.architectures)
        raise UnfitCheckpoint(f"architectures says {said}; of this family {DEEPSPEC} runs here")
    taps = [one + 1 for one in wholes(config, "target_layer_ids")]
    steps = count(config, "ttt_length", STEPS)
    return _translation(checkpoint, config, target, taps=taps, num_steps=steps, prefix="layers.0")


def _library(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config = checkpoint.config
    _refuse_parallel(checkpoint)
    layers = layers_of(checkpoint)
    named, _ = named_layers(config)
    taps, notes = taps_of(named, target)
    return _translation(
        checkpoint,
        layers,
        target,
        taps=taps,
        num_steps=proposed(checkpoint) or LIBRARY_STEPS,
        prefix="layers.0",
        notes=notes,
    )


def _refuse_parallel(checkpoint: Checkpoint) -> None:
    """P-EAGLE, of whichever project: they share a tensor for states that are not there."""
    is_named = any("peagle" in name.lower() for name in checkpoint.architectures)
    if is_named or kind_of(checkpoint) == "peagle" or "mask_hidden" in checkpoint.shapes:
        raise UnfitCheckpoint(
            "P-EAGLE predicts several tokens from mask tokens in one pass (mask_hidden), which the net of EAGLE-3 does "
            "not; take an EAGLE-3 checkpoint"
        )


def _translation(
    checkpoint: Checkpoint,
    layers: Mapping[str, Any],
    target: TargetShape | None,
    *,
    taps: Sequence[int | str],
    num_steps: int,
    prefix: str,
    notes: tuple[str, ...] = (),
) -> Translation:
    config, shapes = checkpoint.config, checkpoint.shapes
    fields = layer_fields(layers)
    if (layers_there := fields.pop("num_layers")) != 1:
        raise UnfitCheckpoint(
            f"it has {layers_there} layers; EAGLE-3 nets of one run here (num_hidden_layers)"
        )
    vocab_size = whole(layers, "vocab_size")
    num = whole(config, "draft_vocab_size", vocab_size)
    if not 1 <= num <= vocab_size:
        raise UnfitCheckpoint(
            f"draft_vocab_size is {num}; it must be 1 to {vocab_size}, the target's token ids"
        )
    # A head with all of the target's tokens may have them in another order.
    names = {name.removeprefix(OUTER): name for name in shapes}
    has_ids = num != vocab_size or "d2t" in names
    has_norms = f"{prefix}.self_attn.q_norm.weight" in names
    # Trainers copy the field from the target, whatever their own nets have.
    has_biases = truth(layers, "attention_bias")
    if kind_of(checkpoint) is None:
        has_biases = any(f"{prefix}.{part}.bias" in names for part in BIASED)
    is_fused = fuses(config)
    flags = {**norms_of(config), "fuses": is_fused, "fc_bias": is_fused and "fc.bias" in names}
    tensors = {"norm.weight": "norm.weight"}
    if is_fused:
        tensors["fc.weight"] = "fc.weight"
    if flags["fc_bias"]:
        tensors["fc.bias"] = "fc.bias"
    tensors |= layer_tensors(prefix, has_norms=has_norms, has_biases=has_biases)
    tensors["midlayer.hidden_norm.weight"] = f"{prefix}.hidden_norm.weight"
    if flags["norm_before_fc"]:
        tensors["input_norm.weight"] = "input_norm.weight"
    if flags["norm_each_tap"]:
        tensors |= {name: name for name in (f"fc_norm.{n}.weight" for n in range(len(taps)))}
    own = {kind: f"{kind}.weight" for kind in ("embed_tokens", "lm_head")}
    own = {kind: name for kind, name in own.items() if name in names}
    tensors |= {name: name for name in own.values()}
    if has_ids:
        tensors["d2t"] = "d2t"
    tensors = {ours: names.get(theirs, theirs) for ours, theirs in tensors.items()}
    aside = unused(checkpoint)
    if not has_ids and "t2d" in shapes:
        aside |= {"t2d": "the head has all of the target's tokens, in order"}
    window = MOST_CONTEXT
    if any(windowed(layers)[:1]):
        window = min(window, whole(layers, "sliding_window"))
    return Translation(
        config={
            "model_type": "eagle3",
            **fields,
            **flags,
            "vocab_size": vocab_size,
            "target_width": whole(config, "target_hidden_size", fields["width"]),
            "taps": list(taps),
            "num_drafted": num if has_ids else 0,
            "num_steps": num_steps,
            "window": window,
            "owns_embedding": "embed_tokens" in own,
            "owns_head": "lm_head" in own,
            "has_head_norms": has_norms,
            "has_biases": has_biases,
            "logit_scale": number(config, "logit_scale", 1.0),
            "eos_token_ids": list(target.eos_token_ids) if target is not None else [],
        },
        tensors=tensors,
        draft_ids="d2t" if has_ids else "",
        draft_mask="t2d" if has_ids and "t2d" in shapes else "",
        ignored=aside,
        notes=notes,
    )


SPECS = (
    CheckpointFormat(
        name="eagle3",
        title="an EAGLE-3 checkpoint (SafeAILab)",
        told_by="`architectures` with `Eagle3`, or `draft_vocab_size` and a tensor `fc.weight`",
        model_type="eagle3",
        recognises=_is_eagle3,
        translate=_eagle3,
    ),
    CheckpointFormat(
        name="eagle3_deepspec",
        title="an EAGLE-3 checkpoint (DeepSpec)",
        told_by=f"`architectures: {DEEPSPEC}`",
        model_type="eagle3",
        recognises=_is_deepspec,
        translate=_deepspec,
    ),
    CheckpointFormat(
        name="eagle3_speculators",
        title="an EAGLE-3 checkpoint (speculators)",
        told_by="`speculators_model_type: eagle3`",
        model_type="eagle3",
        recognises=_is_library,
        translate=_library,
    ),
)
