"""What EAGLE-3's files say beside the layer: which states of the target are read, and where norms are. Some say it in `eagle_config`, some beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.actors.draft.checkpoints.checkpoint_format import TargetShape, UnfitCheckpoint
from outrider.actors.draft.checkpoints.layer_fields import part, truth, wholes

TAPS = "eagle_aux_hidden_state_layer_ids"
OUTPUTS = "aux_hidden_states_layer_ids"
"""Of AngelSlim's trainer, which counts outputs, and which newer versions of it write beside the other one."""

AUXILIARY = "use_aux_hidden_state"
AFTER_NORM = "return_hidden_post_norm"
"""In `eagle_config`: what `norm_output` is beside it."""

NORMS = ("norm_before_fc", "fc_norm", "norm_before_residual", "norm_output")
EACH_TAP = "use_aux_norm"
"""What `fc_norm` was called before."""

FIELDS = (
    TAPS,
    AUXILIARY,
    AFTER_NORM,
    *NORMS,
    EACH_TAP,
    "use_input_layernorm_in_first_layer",
    "use_last_layernorm",
    "use_mtp_layernorm",
    "eagle_decoder_type",
    "next_layer_regular",
    "parallel_draft_step",
    "parallel_draft_heads_num_layers",
)
"""Fields of `eagle_config` that are read, or that the names of tensors show."""


def named_layers(config: Mapping[str, Any]) -> tuple[list[int], tuple[str, ...]]:
    """Layers that a configuration names, by their input, and what was taken for granted of them.

    They ascend: trainers and engines gather states while they pass through the target, in whatever order layers are named.

    Returns:
        Layers, none if it names none; and notes.

    Raises:
        UnfitCheckpoint: They are named twice, and differently.
    """
    own = part(config, "eagle_config")
    within = sorted(wholes(own, TAPS)) if own.get(TAPS) else []
    trained = sorted(one + 1 for one in wholes(config, OUTPUTS)) if config.get(OUTPUTS) else []
    inputs = sorted(wholes(config, TAPS)) if config.get(TAPS) else trained
    if trained and inputs != trained:
        raise UnfitCheckpoint(
            f"{OUTPUTS} names the outputs of the layers {[one - 1 for one in trained]}, and {TAPS} the inputs of {inputs}, "
            "which are others"
        )
    # Both ways of counting are in use there. Whoever counts outputs begins with that of the second block; nobody reads the first block's.
    counts_outputs = within[:1] == [1]
    found = [one + 1 for one in within] if counts_outputs else within
    if found and inputs and found != inputs:
        raise UnfitCheckpoint(
            f"eagle_config names the {'out' if counts_outputs else 'in'}puts of the layers {within}, and {TAPS} the inputs "
            f"of {inputs}, which are others"
        )
    if counts_outputs or not within or inputs:
        return found or inputs, ()
    return found, (
        f"that eagle_config counts layers by their input, as {within} do not begin at 1",
    )


def taps_of(
    layers: list[int], target: TargetShape | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The states that are read: after the layers that files name, or after the authors' default, which is noted.

    Raises:
        UnfitCheckpoint: They name none, and the target is not known.
    """
    if layers:
        return tuple(layers), ()
    if target is None:
        raise UnfitCheckpoint(
            "its files do not say which layers of the target are read; name the target (option target)"
        )
    blocks = target.num_blocks
    usual = (2, blocks // 2, blocks - 3)
    return usual, (f"the target's layers, which its files do not name: after {list(usual)} blocks",)


def fuses(config: Mapping[str, Any]) -> bool:
    """Whether states of several layers are fused. If not, the net reads the state that the target's own head reads."""
    return truth(part(config, "eagle_config"), AUXILIARY, default=True)


def norms_of(config: Mapping[str, Any]) -> dict[str, bool]:
    """Where norms are, by the names of our configurations; what `eagle_config` says goes first."""
    own = part(config, "eagle_config")
    both = {**config, **{name: value for name, value in own.items() if value is not None}}
    before_fc, each_tap, before_residual, output = (truth(both, name) for name in NORMS)
    return {
        "norm_before_fc": before_fc,
        "norm_each_tap": each_tap or truth(both, EACH_TAP),
        "norm_before_residual": before_residual,
        "norm_output": output or truth(own, AFTER_NORM),
    }
