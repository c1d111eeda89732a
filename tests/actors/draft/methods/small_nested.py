"""Small random models of several depths, of which one begins like the other, and what they compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCAB = 61
DEEPEST = 4


def cut_off(layers: int) -> LlamaForCausalLM:
    """A model cut off behind so many layers."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=DEEPEST,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    del model.model.layers[layers:]
    model.config.num_hidden_layers = layers
    model.train(False)
    return model


def save(folder: Path, layers: int, exits: Sequence[int] = ()) -> str:
    """The same as a checkpoint with a tokenizer."""
    model = cut_off(layers)
    if exits:
        model.config.exits = list(exits)
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCAB)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)  # type: ignore[no-untyped-call]
    return str(folder)


@torch.no_grad()
def logits_after(text: Sequence[int], layers: int) -> torch.Tensor:
    """What a model that is cut off there says of the next token."""
    logits: torch.Tensor = cut_off(layers)(input_ids=torch.tensor([text]), use_cache=False).logits
    return logits[0, -1]
