"""Every kind of rotary positions turns as transformers turns it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding, apply_rotary_pos_emb

from outrider.actors.draft.block.block_attention import rotate, rotations
from outrider.actors.draft.checkpoints.layer_fields import layer_fields, rotation_fields
from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.draft.on_states.rotary import frequencies

OLD = {"factor": 8.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **OLD},
        {"rope_type": "yarn", **OLD},
        {"rope_type": "yarn", "mscale": 0.7, "mscale_all_dim": 0.4, **OLD},
        {"rope_type": "yarn", "mscale": 1.0, "mscale_all_dim": 0, **OLD},
        {"rope_type": "yarn", "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.5, **OLD},
    ],
    ids=lambda one: "-".join(map(str, one)),
)
def test_speeds_are_those_of_transformers(scaling: dict[str, Any], is_new: bool) -> None:
    """From either place where a configuration has them."""
    theta = 50_000.0
    both = {"rope_theta": theta, **scaling}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=2, max_position_embeddings=512, rope_parameters=both
    )
    expected, gain = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, torch.device("cpu"))
    given: dict[str, Any] = (
        {"rope_parameters": both} if is_new else {"rope_theta": theta, "rope_scaling": scaling}
    )
    fields = rotation_fields(given, 32)
    found, found_gain = frequencies(32, fields["rope_theta"], fields["rope_scaling"])
    torch.testing.assert_close(found.float(), expected, rtol=1e-5, atol=0.0)
    assert found_gain == pytest.approx(gain)


@pytest.mark.parametrize("name", ["type", "rope_type"])
def test_three_positions_of_a_text_are_one(name: str) -> None:
    """`mrope`, as files for targets that see have it, turns the tokens of a text as if there were no such thing."""
    scaling = {name: "mrope", "mrope_section": [4, 6, 6]}
    plain = {"rope_theta": 50_000.0}
    assert rotation_fields({**plain, "rope_scaling": scaling}, 32) == rotation_fields(plain, 32)


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("kind", ["default", "yarn"])
def test_a_part_of_a_head_turns_as_in_transformers(kind: str, share: float, is_new: bool) -> None:
    """The first numbers of it, in halves of their own; the others stay."""
    both = {"rope_theta": 50_000.0, "rope_type": kind, **(OLD if kind == "yarn" else {})}
    shape: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 2}
    rope = {**both, "partial_rotary_factor": share}
    config = LlamaConfig(**shape, max_position_embeddings=512, rope_parameters=rope)
    default: Any = Phi3RotaryEmbedding.compute_default_rope_parameters
    speeds, gain = {**ROPE_INIT_FUNCTIONS, "default": default}[kind](config, torch.device("cpu"))
    given: dict[str, Any] = {**both, "partial_rotary_factor": share}
    given = {"rope_parameters": given} if is_new else {"rope_scaling": both, **given}
    read = {**shape, "num_hidden_layers": 1, "intermediate_size": 8, **given}
    fields = layer_fields(read)
    del fields["num_layers"]
    ours = EagleConfig(vocab_size=8, taps=(1,), target_width=64, **fields)

    heads, positions = torch.randn(1, 5, 2, 32), torch.arange(5)[None] * 7
    angles = (positions[..., None] * speeds).repeat(1, 1, 2)
    cosines, sines = angles.cos() * gain, angles.sin() * gain
    turn: Any = apply_rotary_pos_emb
    expected, _ = turn(heads, heads, cosines, sines, unsqueeze_dim=2)
    torch.testing.assert_close(rotate(heads, rotations(ours, positions)), expected)
