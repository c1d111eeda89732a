"""The target's tables of tokens are found in its files, whatever its family calls them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    PreTrainedModel,
)

from outrider.actors.draft.heads.speculator_net import matrix
from outrider.actors.draft.on_states.target_tables import target_tables

MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bloom": lambda: BloomForCausalLM(
        BloomConfig(vocab_size=37, hidden_size=16, n_layer=1, n_head=2)
    ),
    "falcon": lambda: FalconForCausalLM(
        FalconConfig(vocab_size=37, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    ),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=37, n_embd=16, n_layer=1, n_head=2)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=37,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    ),
}


@pytest.mark.parametrize("family", MODELS)
def test_tables_of_a_family(tmp_path: Path, family: str) -> None:
    """Embedding and head, tied or not."""
    model = MODELS[family]()
    model.save_pretrained(tmp_path)
    embedding, head = target_tables(str(tmp_path), vocab_size=37, width=16)
    assert torch.equal(embedding, matrix(model.get_input_embeddings()))
    assert torch.equal(head, matrix(model.get_output_embeddings()))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("family", ["bloom", "gpt2"])
def test_tables_of_a_file_without_a_head(tmp_path: Path, family: str) -> None:
    """As the first models of these families were published: the embedding is the head."""
    model = MODELS[family]()
    base: Any = model.base_model
    base.save_pretrained(tmp_path)
    embedding, head = target_tables(str(tmp_path), vocab_size=37, width=16)
    assert torch.equal(embedding, matrix(model.get_input_embeddings()))
    assert torch.equal(head, embedding)
