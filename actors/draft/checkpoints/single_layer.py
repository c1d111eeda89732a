"""The names of the one layer of EAGLE-3's and MTP's files, by those of our net."""

from __future__ import annotations

from outrider.actors.draft.checkpoints.block_fields import BIASED, LAYER

HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")


def layer_tensors(prefix: str, *, has_norms: bool, has_biases: bool) -> dict[str, str]:
    """Names of the tensors of a layer in a file, by ours.

    Args:
        prefix: What the layer is called there.
        has_norms: Whether heads are normed.
        has_biases: Whether attention's maps have biases.
    """
    names = [f"{part}.weight" for part in LAYER if has_norms or part not in HEAD_NORMS]
    names += [f"{part}.bias" for part in BIASED] if has_biases else []
    return {f"midlayer.{name}": f"{prefix}.{name}" for name in names}
