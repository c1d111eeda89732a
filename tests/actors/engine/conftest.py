"""Small random models of several families, and what plain transformers computes with them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.models.transformers_engine import TransformersEngine

VOCAB_SIZE = 61
CONTEXT = 96
WINDOW = 7

_SHAPE: dict[str, object] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    # Large enough that attention matters to the logits.
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": None,
}
_GROUPED = {**_SHAPE, "num_key_value_heads": 2}

FAMILIES: dict[str, dict[str, object]] = {
    "llama": _GROUPED,
    "qwen2": {
        **_GROUPED,
        "use_sliding_window": True,
        "sliding_window": WINDOW,
        "max_window_layers": 1,
    },
    "qwen3": {**_GROUPED, "head_dim": 16},
    "mistral": {**_GROUPED, "sliding_window": WINDOW},
    "gemma2": {
        **_GROUPED,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": WINDOW,
        "attn_logit_softcapping": 2.0,
    },
    "gpt_oss": {
        **_GROUPED,
        "head_dim": 16,
        "sliding_window": WINDOW,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
    },
    "gpt_neox": _SHAPE,
    "gpt2": {
        "vocab_size": VOCAB_SIZE,
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": CONTEXT,
        "initializer_range": 0.2,
        "bos_token_id": 1,
        "eos_token_id": None,
    },
}
"""Configurations of a model of a few thousand weights in each family."""


@functools.cache
def _pristine(family: str) -> PreTrainedModel:
    torch.manual_seed(0)
    # transformers leaves this one untyped.
    config = AutoConfig.for_model(family, **FAMILIES[family])
    # Step by step: fused attention of transformers 5.10 ignores capped scores.
    model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, attn_implementation="eager"
    )
    model.train(False)
    return model


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    """Each family in turn."""
    name: str = request.param
    return name


@pytest.fixture
def plain_model() -> Callable[[str], PreTrainedModel]:
    """Gives a model of a family, untouched by any engine."""
    return _pristine


@pytest.fixture
def make_engine() -> Callable[..., TransformersEngine]:
    """Gives an engine with the weights of the plain model of a family."""

    def make(
        family: str,
        *,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        prepare: Callable[[PreTrainedModel], None] = lambda _: None,
        **settings: object,
    ) -> TransformersEngine:
        model = copy.deepcopy(_pristine(family)).to(device=torch.device(device), dtype=dtype)  # type: ignore[call-arg]
        prepare(model)
        given = EngineSettings(model=family, **{"num_slots": 4, "max_scratch": 24, **settings})  # type: ignore[arg-type]
        return TransformersEngine(model, given, name=family, fingerprint="none")

    return make


@pytest.fixture
def plain_logits() -> Callable[[str, Sequence[Sequence[int]]], torch.Tensor]:
    """Gives the logits after each text as plain transformers computes them. Shape (texts, V)."""

    def logits(family: str, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(len(text) for text in texts)
        # What follows a text does not matter under a causal mask.
        ids = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts])
        with torch.no_grad():
            every = _pristine(family)(input_ids=ids, use_cache=False).logits
        last = torch.tensor([len(text) - 1 for text in texts])
        wanted: torch.Tensor = every[torch.arange(len(texts)), last]
        return wanted

    return logits
