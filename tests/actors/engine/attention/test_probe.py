"""Models that are refused, and why."""

from __future__ import annotations

import copy
import importlib.metadata
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from outrider.actors.engine.attention.attention import UnsupportedModel
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.models import transformers_engine
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.probe import load_probe, probe_layers
from outrider.actors.engine.protocol import Engine, Rows

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
        ("rwkv", {"hidden_size": 32, "num_hidden_layers": 2}, "takes no cache of keys and values"),
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
    monkeypatch.setattr(probe_layers, "REFUSED_OPTIONS", frozenset({"scaling"}))
    with pytest.raises(UnsupportedModel, match=r"layer 0 of it .* asks attention for scaling"):
        serve(build("llama", **SMALL))


def neighbouring(model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> PreTrainedModel:
    """The model, now looking at how its input lies in the batch."""
    embed = model.get_input_embeddings()
    assert isinstance(embed, torch.nn.Module)
    plain: Callable[[torch.Tensor], torch.Tensor] = embed.forward

    def with_neighbours(ids: torch.Tensor) -> torch.Tensor:
        embedded = plain(ids)
        return embedded + 0.5 * torch.roll(embedded, 1, dims=1)

    monkeypatch.setattr(embed, "forward", with_neighbours)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("max_scratch", [2, 24])
def test_a_model_whose_tree_differs_is_refused(
    dtype: torch.dtype, max_scratch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no option shows, the logits show, in every type and however few rows there is room for."""
    model = neighbouring(build("llama", **SMALL, initializer_range=0.2), monkeypatch)
    with pytest.raises(UnsupportedModel, match="gives other logits for a tree"):
        serve(model.to(dtype), max_scratch=max_scratch)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_is_judged_by_the_models_own(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where transformers' own rounding is small, a difference of a tenth of the spread
    is too much."""
    model = build("gemma2", **SMALL, initializer_range=0.2, head_dim=8)
    serve(copy.deepcopy(model).to(dtype))  # type: ignore[arg-type]
    check = load_probe.check_tree

    def check_changed(
        engine: Engine, tree: load_probe.ProbeTree, reference: load_probe.Reference
    ) -> None:
        changed = reference.logits_NV + reference.logits_NV.std() * 0.1 * torch.randn(
            reference.logits_NV.shape, generator=torch.Generator().manual_seed(0)
        )
        check(engine, tree, replace(reference, logits_NV=changed))

    monkeypatch.setattr(transformers_engine, "check_tree", check_changed)
    with pytest.raises(UnsupportedModel, match="gives other logits for a tree"):
        serve(model.to(dtype))  # type: ignore[arg-type]


@pytest.mark.parametrize("max_context", [4, 5, 64])
@pytest.mark.parametrize("max_scratch", [1, 2, 24])
def test_probe_fits_small_rooms(max_context: int, max_scratch: int) -> None:
    """A context or scratch hardly longer than the probed tree, or shorter, is no obstacle."""
    model = build("llama", **SMALL)
    spec = serve(model, max_context=max_context, max_scratch=max_scratch).spec
    assert spec.max_context == max_context


def test_probed_tree() -> None:
    """Its branches are those of its leaves, and each node is a row of one."""
    tree = load_probe.probe_tree(61, max_context=64, max_scratch=24)
    branches, places = tree.branches()
    assert [len(branch) for branch in branches] == [10, 11]
    assert places == [(1, 8), (0, 8), (1, 9), (0, 9), (1, 10)]
    for (branch, row), token in zip(places, tree.tokens, strict=True):
        assert branches[branch][row] == token


def test_weights_that_are_no_numbers() -> None:
    """A damaged weight is named, and not taken for a property of the architecture."""
    model = build("llama", **SMALL)
    with torch.no_grad():
        model.get_parameter("model.layers.1.mlp.up_proj.weight")[3, 5] = float("nan")
    with pytest.raises(
        ValueError, match=r"weight model\.layers\.1\.mlp\.up_proj\.weight holds NaN"
    ):
        serve(model)


def test_rounding_that_chooses_another_expert_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In half precision one unlucky tree refuses nobody, and the engine computes as before; in float32 nothing is luck."""
    model = build("llama", **SMALL, initializer_range=0.2)
    check = load_probe.check_tree
    lucky: list[bool] = []

    def check_unlucky(
        engine: Engine, tree: load_probe.ProbeTree, reference: load_probe.Reference
    ) -> None:
        lucky.append(bool(lucky))
        worse = reference if lucky[-1] else replace(reference, logits_NV=-reference.logits_NV)
        check(engine, tree, worse)

    monkeypatch.setattr(transformers_engine, "check_tree", check_unlucky)
    half = copy.deepcopy(model).to(dtype=torch.bfloat16)  # type: ignore[call-arg]
    engine = serve(half, direct_forward=False)
    assert lucky == [False, True]
    logits = engine.forward([Rows(slot=engine.acquire(), tokens=[1, 2], parents=[-1, 0])])
    assert logits.values_RV.isfinite().all()
    lucky.clear()
    with pytest.raises(UnsupportedModel, match="gives other logits"):
        serve(model, direct_forward=False)
