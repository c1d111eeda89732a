"""MLP speculators (Wertheimer et al. 2024, arXiv 2404.19124): the `accelerator` checkpoints of IBM and the Foundation Model Stack."""

from __future__ import annotations

from outrider.actors.draft.checkpoints.checkpoint_format import (
    Checkpoint,
    CheckpointFormat,
    TargetShape,
    Translation,
    UnfitCheckpoint,
)
from outrider.actors.draft.checkpoints.layer_fields import count, truth, whole

PREFIX = "speculator."


def _is_mlp(checkpoint: Checkpoint) -> bool:
    config = checkpoint.config
    says = config.get("model_type") == "mlp_speculator" and "emb_dim" in config
    return says or "MLPSpeculatorPreTrainedModel" in checkpoint.architectures


def _mlp(checkpoint: Checkpoint, target: TargetShape | None) -> Translation:
    config = checkpoint.config
    if (method := config.get("method")) is not None:
        raise UnfitCheckpoint(
            f"method is {method!r}, a net of Arctic's; those of the Foundation Model Stack, which have no method, run here"
        )
    width, num = whole(config, "emb_dim"), count(config, "n_predict")
    inner = whole(config, "inner_dim", 0) or width
    is_tied = truth(config, "tie_weights")
    prefix = PREFIX if any(name.startswith(PREFIX) for name in checkpoint.shapes) else ""
    tables = 1 if is_tied else num
    later = 1 if is_tied else num - 1
    tensors = {"first.weight": "proj.0.weight"}
    tensors |= {f"later.{n}.weight": f"proj.{n + 1}.weight" for n in range(later)}
    for n in range(tables):
        tensors |= {
            f"embeddings.{n}.weight": f"emb.{n}.weight",
            f"norms.{n}.weight": f"ln.{n}.weight",
            f"norms.{n}.bias": f"ln.{n}.bias",
            f"lm_heads.{n}.weight": f"head.{n}.weight",
        }
    tensors = {ours: prefix + theirs for ours, theirs in tensors.items()}
    again = {
        f"{prefix}{kind}.{n}.{part}": f"{prefix}{kind}.{int(kind == 'proj')}.{part}"
        for n in range(1, num)
        for kind, part in (
            ("emb", "weight"),
            ("ln", "weight"),
            ("ln", "bias"),
            ("head", "weight"),
            ("proj", "weight"),
        )
        if kind != "proj" or n > 1
    }
    return Translation(
        config={
            "model_type": "mlp_speculator",
            "vocab_size": whole(config, "vocab_size"),
            "width": width,
            "inner": inner,
            "num_stages": num,
            "tied": is_tied,
            "scaled": truth(config, "scale_input"),
            "tables": "own",
            "eos_token_ids": list(target.eos_token_ids) if target is not None else [],
        },
        tensors=tensors,
        repeated=again if is_tied else {},
    )


SPECS = (
    CheckpointFormat(
        name="mlp_speculator_ibm",
        title="an MLP speculator (Foundation Model Stack)",
        told_by="`model_type: mlp_speculator` with `emb_dim`",
        model_type="mlp_speculator",
        recognises=_is_mlp,
        translate=_mlp,
    ),
)
