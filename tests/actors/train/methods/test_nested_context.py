"""How long a nested draft's context is, whatever its target says of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import (
    AutoConfig,
    BloomConfig,
    BloomForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from outrider.actors import demo
from outrider.actors.train.methods.sorted_trainer import run
from outrider.actors.train.nested.nested_options import NestedTrainingOptions
from outrider.actors.train.text.train_tokenizer import load_tokenizer

SHAPE: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def bloom() -> PreTrainedModel:
    """Has no table of positions, and says nothing of its context."""
    return BloomForCausalLM(BloomConfig(vocab_size=4096, hidden_size=16, n_layer=2, n_head=2))


def boundless() -> PreTrainedModel:
    """Says that there is no limit."""
    shape = LlamaConfig(**SHAPE, intermediate_size=16, max_position_embeddings=512)
    shape.max_position_embeddings = -1
    return LlamaForCausalLM(shape)


@pytest.mark.parametrize("target_of", [bloom, boundless])
def test_a_target_that_names_no_context(tmp_path: Path, tiny_data: Path, target_of: Any) -> None:
    """Its draft is trained, and has a context all the same."""
    target = tmp_path / "target"
    target_of().save_pretrained(target)
    load_tokenizer(demo.path("target")).save_pretrained(target)
    options = NestedTrainingOptions(
        data=tiny_data, out=tmp_path / "out", target=str(target), device="cpu", minutes=0.0,
        exits=(1,), width=16, inner=16, num_heads=2, steps=1, text_rows=8, own_rows=8,
        row_length=16, prompt_length=6, rows_per_step=2,
    )  # fmt: skip
    run(options)
    assert AutoConfig.from_pretrained(tmp_path / "out" / "sorted").max_position_embeddings > 16
