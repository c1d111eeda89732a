"""Models that are refused, and why."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from outrider.actors.engine import probe
from outrider.actors.engine.attention import UnsupportedModel
from outrider.actors.engine.settings import EngineSettings
from outrider.actors.engine.transformers_engine import TransformersEngine

SMALL: dict[str, object] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}


def build(model_type: str, **config: object) -> PreTrainedModel:
    """A random model."""
    made = AutoConfig.for_model(model_type, **config)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(made)  # type: ignore[no-untyped-call]
    return model


def serve(model: PreTrainedModel, **settings: object) -> TransformersEngine:
    """An engine for it."""
    given = EngineSettings(model="it", **{"num_slots": 1, **settings})  # type: ignore[arg-type]
    return TransformersEngine(model, given, name="it", fingerprint="")


@pytest.mark.parametrize(
    ("model_type", "config", "message"),
    [
        ("bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "takes no position_ids"),
        (
            "falcon",
            {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
            "computes attention by itself",
        ),
        pytest.param(
            "deepseek_v3",
            {
                **SMALL,
                "num_key_value_heads": 4,
                "q_lora_rank": 16,
                "kv_lora_rank": 16,
                "qk_rope_head_dim": 8,
                "qk_nope_head_dim": 8,
                "v_head_dim": 12,
                "first_k_dense_replace": 2,
            },
            "layer 0 attends to other keys and values than it caches",
            marks=pytest.mark.skipif(
                importlib.metadata.version("transformers").startswith("5.10."),
                reason="transformers 5.10 caches this model's whole keys, which tree attention fits",
            ),
        ),
        ("rwkv", {"hidden_size": 32, "num_hidden_layers": 2}, "takes no past_key_values"),
    ],
)
def test_unsupported_models(model_type: str, config: dict[str, object], message: str) -> None:
    """Each model that tree attention does not fit is refused at load, with the reason."""
    with pytest.raises(UnsupportedModel, match=message):
        serve(build(model_type, **{"vocab_size": 61, **config}), max_context=64)


def test_context_must_be_known() -> None:
    """A model that does not say how long its context is needs the setting."""
    model = build("bloom", vocab_size=61, hidden_size=32, n_layer=2, n_head=4)
    with pytest.raises(ValueError, match="it does not say how long its context is"):
        serve(model)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_positions_that_are_rescaled_later(kind: str) -> None:
    """A model that rescales all positions when the text grows is served up to there only."""
    rope: dict[str, object] = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    if kind == "longrope":
        rope |= {
            "short_factor": [1.0] * 4,
            "long_factor": [2.0] * 4,
            "original_max_position_embeddings": 32,
        }
    config = {**SMALL, "rope_parameters": rope}
    if kind == "longrope":
        with pytest.raises(UnsupportedModel, match="set max_context to at most 32"):
            serve(build("llama", **config), max_context=33)
        assert serve(build("llama", **config), max_context=32).spec.max_context == 32
        assert serve(build("llama", **config)).spec.max_context == 32
    else:
        assert serve(build("llama", **config)).spec.max_context == 64


def test_options_that_are_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attention option that would be ignored is a refusal, by layer and name."""
    monkeypatch.setattr(probe, "REFUSED_OPTIONS", frozenset({"scaling"}))
    with pytest.raises(UnsupportedModel, match=r"layer 0 of it .* asks attention for scaling"):
        serve(build("llama", **SMALL))


def test_window_that_attention_is_not_told_of() -> None:
    """A sliding layer that leaves its window to the mask would see too much, so it is refused."""
    model = build("llama", **SMALL, layer_types=["sliding_attention", "full_attention"])
    with pytest.raises(UnsupportedModel, match=r"layer 0 of it .* is of type sliding_attention"):
        serve(model)


def test_a_model_whose_tree_differs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What no option shows, the logits show: here, a model that looks at how its input lies in the batch."""
    model = build("llama", **SMALL, initializer_range=0.2)
    embed = model.get_input_embeddings()
    assert isinstance(embed, torch.nn.Module)
    plain: Callable[[torch.Tensor], torch.Tensor] = embed.forward

    def neighbouring(ids: torch.Tensor) -> torch.Tensor:
        embedded = plain(ids)
        return embedded + 0.5 * torch.roll(embedded, 1, dims=1)

    monkeypatch.setattr(embed, "forward", neighbouring)
    with pytest.raises(UnsupportedModel, match="gives other logits for a tree"):
        serve(model)


def test_probe_fits_small_contexts() -> None:
    """A context hardly longer than the probed tree is no obstacle."""
    model = build("llama", **SMALL)
    assert serve(model, max_context=5, max_scratch=2).spec.max_context == 5
    prefix, tree, paths = probe.probe_paths(61, 6)
    assert (len(prefix), len(tree), len(paths[-1])) == (1, 5, 4)
