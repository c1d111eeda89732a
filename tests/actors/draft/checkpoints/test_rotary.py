"""Every kind of rotary positions turns as transformers turns it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from outrider.actors.draft.checkpoints.layer_fields import rotation_fields
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
    fields = rotation_fields(given)
    found, found_gain = frequencies(32, fields["rope_theta"], fields["rope_scaling"])
    torch.testing.assert_close(found.float(), expected, rtol=1e-5, atol=0.0)
    assert found_gain == pytest.approx(gain)


@pytest.mark.parametrize("name", ["type", "rope_type"])
def test_three_positions_of_a_text_are_one(name: str) -> None:
    """`mrope`, as files for targets that see have it, turns the tokens of a text as if there were no such thing."""
    scaling = {name: "mrope", "mrope_section": [4, 6, 6]}
    plain = {"rope_theta": 50_000.0}
    assert rotation_fields({**plain, "rope_scaling": scaling}) == rotation_fields(plain)
