"""From settings to engines, and what settings are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from outrider.actors.engine.attention.attention import UnsupportedModel
from outrider.actors.engine.checkpoint import room
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.sizing import DoesNotFit, Memory
from outrider.actors.engine.load.load_engine import choose_dtype, load_engine
from outrider.actors.engine.protocol import Rows
from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table


@pytest.fixture
def folder(tmp_path: Path, plain_model: Callable[[str], PreTrainedModel]) -> Path:
    """A saved model."""
    plain_model("qwen3").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_is_loaded(
    folder: Path, plain_logits: Callable[[str, list[list[int]]], torch.Tensor]
) -> None:
    """A saved model comes back with its weights, its name, and the room that was asked for."""
    engine = load_engine(
        EngineSettings(model=str(folder), num_slots=3, max_context=40, max_scratch=9, num_threads=1)
    )
    assert (engine.num_slots, engine.max_scratch) == (3, 9)
    assert (engine.spec.name, engine.spec.max_context) == (str(folder), 40)
    assert torch.get_num_threads() == 1
    slot = engine.acquire()
    logits = engine.forward([Rows(slot=slot, tokens=[1, 2], parents=[-1, 0])])
    expected = plain_logits("qwen3", [[1], [1, 2]])
    torch.testing.assert_close(logits.of(0), expected, atol=1e-5, rtol=0)


def test_dtype_is_that_of_the_settings(folder: Path) -> None:
    """Weights and cache get the type that was asked for, whatever was saved."""
    settings = EngineSettings(model=str(folder), num_slots=1)
    exact = load_engine(settings)  # as on any CPU
    half = load_engine(replace(settings, dtype="bfloat16"))
    assert (exact.spec.dtype, half.spec.dtype) == (torch.float32, torch.bfloat16)
    assert exact.spec.fingerprint == half.spec.fingerprint


@pytest.mark.parametrize(
    ("name", "saved", "device", "chosen"),
    [
        ("auto", "bfloat16", "cpu", torch.float32),
        ("auto", "bfloat16", "cuda", torch.bfloat16),
        ("auto", "float16", "cuda", torch.float16),
        ("auto", None, "cuda", torch.float32),
        ("bfloat16", "float32", "cpu", torch.bfloat16),
        ("float32", "bfloat16", "cuda", torch.float32),
    ],
)
def test_the_type_left_open(name: str, saved: str | None, device: str, chosen: torch.dtype) -> None:
    """A CPU computes in float32, a GPU in the type that was saved; what is set is taken."""
    config = LlamaConfig(dtype=saved)
    assert choose_dtype(name, config, torch.device(device))[0] is chosen


def test_what_does_not_fit_is_refused_before_weights_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what would fit."""
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)
    memory = Memory(total=3 * 2**20, name="a small machine", is_lazy=True)
    monkeypatch.setattr(room, "device_memory", lambda device, share: memory)
    settings = EngineSettings(model=str(folder), num_slots=64, max_context=96)
    with pytest.raises(DoesNotFit, match=r"num_slots up to \d+ with this context") as caught:
        load_engine(settings)
    found = re.search(r"num_slots up to (\d+)", str(caught.value))
    assert found is not None
    monkeypatch.undo()
    monkeypatch.setattr(room, "device_memory", lambda device, share: memory)
    assert load_engine(replace(settings, num_slots=int(found[1]))).num_slots == int(found[1])
    with pytest.raises(DoesNotFit, match="a small machine has"):
        load_engine(replace(settings, num_slots=int(found[1]) + 1))


def test_a_table_is_loaded(tmp_path: Path) -> None:
    """`tabular:FILE` gives a table with the settings' slots."""
    table = random_table(5, 1, seed=0)
    table.save(tmp_path / "t.npz")
    name = f"tabular:{tmp_path / 't.npz'}"
    engine = load_engine(EngineSettings(model=name, num_slots=2, max_context=17))
    assert isinstance(engine, TabularEngine)
    assert (engine.spec.name, engine.num_slots, engine.spec.max_context) == (name, 2, 17)
    assert engine.spec.fingerprint == table.fingerprint


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ""}, "model is empty"),
        ({"model": "./nowhere"}, "there is no such folder"),
        ({"model": "tabular:nowhere.npz"}, "there is no file nowhere.npz"),
        ({"model": "demo:nowhere"}, "demonstration model 'nowhere'"),
        ({"dtype": "int8"}, "dtype is 'int8'; it must be one of auto, float32, bfloat16, float16"),
        (
            {"device": "abacus"},
            "device is 'abacus'; it must be cpu, cuda, cuda:N or emulated:PROFILE",
        ),
        ({"device": "meta"}, "device is 'meta'; it must be cpu, cuda, cuda:N or emulated:PROFILE"),
        ({"device": "cuda:99"}, "device is 'cuda:99', but torch .* finds [0-9]+ CUDA devices"),
        ({"num_slots": 0}, "num_slots is 0"),
        ({"num_slots": 10**9}, r"what fits: num_slots up to \d+ with this context"),
        ({"max_scratch": 0}, "max_scratch is 0"),
        ({"max_context": 0}, "max_context is 0; it must be at least 4"),
        ({"max_context": 2}, "max_context is 2; it must be at least 4"),
        ({"max_context": 3}, "max_context is 3; it must be at least 4"),
        ({"gpu_share": 0.0}, "gpu_share is 0.0; it must be more than 0 and at most 1"),
        ({"max_context": 97}, "max_context is 97, but .* has a context of 96"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"niceness": 20}, "niceness is 20; it must be 0 to 19"),
        ({"niceness": -1}, "niceness is -1; it must be 0 to 19"),
        ({"cuda_graphs": "maybe"}, "cuda_graphs is 'maybe'; it must be auto, on or off"),
    ],
)
def test_settings_that_cannot_be_used(
    changes: dict[str, object], message: str, folder: Path
) -> None:
    """Each refusal names the field, the value and the choice."""
    settings = EngineSettings(model=str(folder))
    with pytest.raises(ValueError, match=message):
        load_engine(replace(settings, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "t5"}, "is an encoder-decoder model"),
        ({"model_type": "mamba"}, r"layers of type (linear_attention|mamba)"),
        ({"model_type": "llama4_text"}, "layers of type chunked_attention"),
        (
            {"model_type": "qwen2_vl"},
            r"\(qwen2_vl\) is of a type of which transformers has no causal language model$",
        ),
        ({"model_type": "mistral3"}, r"its language model \(mistral\) can be tried"),
        ({"model_type": "clip"}, r"\(clip\) is of a type of which"),
        # Neither says how long its context is, which is not the reason.
        ({"model_type": "bloom"}, "takes no position_ids"),
        ({"model_type": "mpt"}, "takes no position_ids"),
    ],
)
def test_architectures_that_cannot_be_served(
    config: dict[str, object], message: str, tmp_path: Path
) -> None:
    """Before any weights are read, the configuration shows what is not a decoder with keys and values, in one sentence."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=message):
        load_engine(EngineSettings(model=str(tmp_path)))


def test_incomplete_folders(folder: Path, tmp_path: Path) -> None:
    """A folder without configuration, without weights, or of an unknown type is refused."""
    with pytest.raises(ValueError, match=r"the folder has no config\.json"):
        load_engine(EngineSettings(model=str(tmp_path)))
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="is the folder complete"):
        load_engine(EngineSettings(model=str(folder)))
    (folder / "config.json").write_text(json.dumps({"model_type": "never_heard_of"}))
    with pytest.raises(ValueError, match="never_heard_of"):
        load_engine(EngineSettings(model=str(folder)))


def test_damaged_weights(folder: Path) -> None:
    """Weights that are cut short, that are missing or that are of another shape are refused, not made up."""
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    tensors = load(whole)
    settings = EngineSettings(model=str(folder))
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_engine(settings)
    lost = "model.layers.1.mlp.up_proj.weight"
    save_file({k: v for k, v in tensors.items() if k != lost}, file, {"format": "pt"})
    with pytest.raises(ValueError, match=f"lacks 1 weights of a qwen3 .* {lost}"):
        load_engine(settings)
    save_file({**tensors, lost: torch.zeros(3, 3)}, file, {"format": "pt"})
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_engine(settings)


def test_a_file_written_over_does_not_reach_a_running_engine(folder: Path) -> None:
    """An engine keeps its weights when the checkpoint that it came from is overwritten in place."""
    engine = load_engine(EngineSettings(model=str(folder)))
    slot, rows = engine.acquire(), [Rows(slot=0, tokens=[1, 2], parents=[-1, 0])]
    before = engine.forward(rows).values_RV
    engine.truncate(slot, 0)
    (folder / "model.safetensors").write_bytes(b"")
    torch.testing.assert_close(engine.forward(rows).values_RV, before, atol=0, rtol=0)


def test_remote_code_is_not_run_unasked(folder: Path) -> None:
    """A model that brings its own code is refused, and the code does not run."""
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "never_heard_of",
        "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="set allow_remote_code if you trust"):
        load_engine(EngineSettings(model=str(folder)))
    assert not (folder / "ran").exists()
