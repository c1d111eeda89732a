"""What all files of the library `speculators` have in common: how their kind is named, their layers, and the target's tables beside the net's own, which
others of block drafters have, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.actors.draft.checkpoints.checkpoint_format import Checkpoint, UnfitCheckpoint
from outrider.actors.draft.checkpoints.layer_fields import count, truth, whole

LIBRARY = "speculators_model_type"
"""What every folder of it says of itself."""

OF_THE_TARGET = ("verifier_norm.weight", "verifier_lm_head.weight")


def kind_of(checkpoint: Checkpoint) -> object:
    """The kind that a folder of the library says it is; None: it is of others."""
    return checkpoint.config.get(LIBRARY)


def layers_of(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """The configuration of the decoder layers.

    Raises:
        UnfitCheckpoint: There is none.
    """
    layers = checkpoint.config.get("transformer_layer_config")
    if not isinstance(layers, Mapping):
        raise UnfitCheckpoint("transformer_layer_config is missing")
    return layers


def proposed(checkpoint: Checkpoint) -> int | None:
    """Tokens in a row that its files say it proposes, which is as many as it was trained for; None: they do not say.

    Raises:
        UnfitCheckpoint: There are too many.
    """
    said = checkpoint.config.get("speculators_config")
    methods = said.get("proposal_methods") if isinstance(said, Mapping) else None
    first = methods[0] if isinstance(methods, list) and methods else None
    steps = first.get("speculative_tokens") if isinstance(first, Mapping) else None
    is_said = type(steps) is int and steps > 0
    return count({"speculative_tokens": steps}, "speculative_tokens") if is_said else None


def first_slot_of(checkpoint: Checkpoint, *, is_unsaid: bool) -> tuple[int, tuple[str, ...]]:
    """Which slot of a block predicts the token behind the newest: 0, or 1 where slot 0 predicts none; and a note where the files do not say.

    Args:
        checkpoint: The folder.
        is_unsaid: What `sample_from_anchor` is for the library where they do not, and where the number of tokens that are proposed
            is neither that of slots nor one less.

    Raises:
        UnfitCheckpoint: It is neither true nor false.
    """
    told = checkpoint.config.get("sample_from_anchor")
    if told is None:
        without_anchor = count(checkpoint.config, "block_size") - (proposed(checkpoint) or 0)
        told = without_anchor == 0 if without_anchor in (0, 1) else is_unsaid
        word = str(told).lower()
        note = (
            f"sample_from_anchor: {word}, until known tokens have shown which one its slots predict"
        )
        return (0 if told else 1), (note,)
    said = truth(checkpoint.config, "sample_from_anchor")
    return (0 if said else 1), ()


def unused(checkpoint: Checkpoint) -> dict[str, str]:
    """Tensors that it stores and no drafting reads, and why. A converter has left some of them unfilled."""
    found = (name for name in OF_THE_TARGET if name in checkpoint.shapes)
    return dict.fromkeys(found, "the target's, for training")


def tables_beside(checkpoint: Checkpoint, vocab_size: int) -> dict[str, Any]:
    """Fields of a `Translation`: the tables that files of a block drafter hold besides, each of which may be absent."""
    shapes = checkpoint.shapes
    names = {
        "embedding": "embed_tokens.weight",
        "head": "lm_head.weight",
        "draft_ids": "d2t",
        "draft_mask": "t2d",
    }
    found: dict[str, Any] = {kind: name for kind, name in names.items() if name in shapes}
    num = whole(checkpoint.config, "draft_vocab_size", 0)
    table = found.get("draft_ids")
    if num and table and shapes[table] != (num,):
        raise UnfitCheckpoint(
            f"draft_vocab_size is {num}, and its table {table} is {shapes[table]}; ({num},) is needed"
        )
    num = num or vocab_size
    if num != vocab_size and "draft_ids" not in found:
        raise UnfitCheckpoint(
            f"its head has {num} of the target's {vocab_size} token ids, and no table d2t says which"
        )
    return {**found, "ignored": unused(checkpoint)}
