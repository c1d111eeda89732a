"""Deepening costs layers and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from outrider.actors.engine.checkpoint.cache_argument import cache_argument
from outrider.actors.train.demo.deepen import deepen, deepen_folder
from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.loop.training_checkpoint import save_model
from outrider.actors.train.text.train_tokenizer import train_tokenizer
from outrider.actors.train.training_errors import TrainError

SHAPE = ModelShape(hidden=16, layers=2, heads=2, key_value_heads=1, intermediate=16, vocabulary=300)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
ROWS = torch.arange(40).reshape(2, 20)


def model() -> LlamaForCausalLM:
    """A random model."""
    torch.manual_seed(0)
    return build(SHAPE, SPECIAL)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_bit_identical(dtype: torch.dtype) -> None:
    """Not close: equal, in both precisions, cached or not."""
    original = torch.nn.Module.to(model(), dtype)
    deeper = deepen(original, 5)
    assert torch.equal(original(input_ids=ROWS).logits, deeper(input_ids=ROWS).logits)
    argument = cache_argument(original) or "cache"
    kept = [getattr(m(input_ids=ROWS, use_cache=True), argument) for m in (original, deeper)]
    after = [
        m(input_ids=ROWS[:, :3], **{argument: cache}).logits
        for m, cache in zip((original, deeper), kept, strict=True)
    ]
    assert torch.equal(after[0], after[1])


def test_layers_are_real_and_numbered() -> None:
    """Every added layer computes with non-zero weights and has its own cache index."""
    deeper = deepen(model(), 5)
    layers = list(deeper.model.layers)
    assert deeper.config.num_hidden_layers == len(layers) == 5
    assert [layer.self_attn.layer_idx for layer in layers] == list(range(5))
    assert all(layer.self_attn.q_proj.weight.any() for layer in layers)


@torch.no_grad()
def test_layers_to_be_trained_are_repeated_in_turn() -> None:
    """Each added layer begins as another of the last ones, and the model says the same."""
    original = model()
    deeper = deepen(original, 5, repeated=2)
    weights = [layer.mlp.up_proj.weight for layer in deeper.model.layers]
    assert not torch.equal(weights[0], weights[1])
    for added, repeated in ((2, 0), (3, 1), (4, 0)):
        assert torch.equal(weights[added], weights[repeated])
    assert torch.equal(original(input_ids=ROWS).logits, deeper(input_ids=ROWS).logits)


def test_original_is_untouched() -> None:
    """A copy is returned."""
    original = model()
    deepen(original, 4)
    assert original.config.num_hidden_layers == len(original.model.layers) == 2
    assert original.model.layers[1].mlp.down_proj.weight.any()


@torch.no_grad()
def test_folder_round_trip(tmp_path: Path) -> None:
    """The written folder loads by itself and speaks alike."""
    save_model(tmp_path / "a", model(), train_tokenizer(["abc"], 300))
    deepen_folder(tmp_path / "a", tmp_path / "b", 6)
    shallow, deeper = (AutoModelForCausalLM.from_pretrained(tmp_path / x) for x in "ab")
    assert deeper.config.num_hidden_layers == 6
    assert deeper.dtype == shallow.dtype
    assert torch.equal(shallow(input_ids=ROWS).logits, deeper(input_ids=ROWS).logits)
    assert (tmp_path / "b" / "tokenizer.json").exists()


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    """Fewer layers, another architecture, or a folder that would be overwritten."""
    with pytest.raises(TrainError, match="num_layers is 1, the model has 2"):
        deepen(model(), 1)
    with pytest.raises(TrainError, match="no such folder"):
        deepen_folder(tmp_path / "none", tmp_path / "b", 3)
    with pytest.raises(TrainError, match="would overwrite the source"):
        deepen_folder(tmp_path, tmp_path, 3)
    with pytest.raises(TrainError, match=r"Linear has no model\.layers"):
        deepen(torch.nn.Linear(1, 1), 3)  # type: ignore[arg-type]
