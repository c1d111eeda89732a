"""What is read from a model's configuration."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from outrider.actors.engine.checkpoint.model_facts import eos_token_ids

SHAPE: dict[str, Any] = {
    "vocab_size": 8,
    "hidden_size": 4,
    "intermediate_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
}


@pytest.mark.parametrize(
    ("generation", "configuration", "expected"),
    [
        (2, 3, (2,)),
        ([2, 5], 3, (2, 5)),
        (None, 3, (3,)),
        (None, None, ()),
        (-1, 3, ()),
        ([-1, 5], 3, (5,)),
        (None, -1, ()),
    ],
)
def test_ends_of_text(
    generation: int | list[int] | None, configuration: int | None, expected: tuple[int, ...]
) -> None:
    """The generation defaults come first; a number below 0 is no token, and no message could hold it."""
    config = LlamaConfig(**SHAPE, eos_token_id=configuration)
    model = LlamaForCausalLM(config)
    made: Any = GenerationConfig
    model.generation_config = made(eos_token_id=generation)
    assert eos_token_ids(model) == expected
