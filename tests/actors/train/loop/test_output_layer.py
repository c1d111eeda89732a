"""What a target makes of its last states is what the model itself makes of them, whatever stands behind the product with its head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    PreTrainedModel,
)

from outrider.actors.train.features.output_layer import OutputLayer
from outrider.actors.train.training_errors import TrainError

SHAPE: dict[str, Any] = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "pad_token_id": 0,
}


def phi() -> PreTrainedModel:
    """Has a bias behind its head."""
    model = PhiForCausalLM(PhiConfig(**SHAPE))
    torch.nn.init.normal_(model.lm_head.bias)
    return model


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bias": phi,
    "capped": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=2.0)
    ),
    "divided": lambda: GraniteForCausalLM(GraniteConfig(**SHAPE, logits_scaling=4.0)),
    "multiplied": lambda: CohereForCausalLM(CohereConfig(**SHAPE, logit_scale=0.25)),
    "product": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=37, n_embd=16, n_layer=2, n_head=2, n_positions=64)
    ),
}


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_logits_are_the_models_own(kind: str) -> None:
    """Of states of any shape, again and again; and the model is left as it was."""
    torch.manual_seed(3)
    model = MODELS[kind]()
    model.train(False)
    ids = torch.randint(0, 37, (2, 9))
    wanted = model(input_ids=ids).logits
    states = getattr(model, model.base_model_prefix)(input_ids=ids).last_hidden_state
    output = OutputLayer(model)
    for _ in range(2):
        assert torch.allclose(output(states), wanted, atol=1e-4)
        assert torch.allclose(output(states[1, 4]), wanted[1, 4], atol=1e-4)
    assert torch.equal(model(input_ids=ids).logits, wanted)


def test_a_model_that_gives_no_numbers() -> None:
    """Weights of a training that has failed: said before anything is computed with them."""
    model = MODELS["product"]()
    model.get_output_embeddings().weight.data[0, 0] = float("nan")  # type: ignore[no-untyped-call]
    with pytest.raises(TrainError, match="not finite"):
        OutputLayer(model)
