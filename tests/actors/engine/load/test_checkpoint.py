"""Checkpoints that are not what they seem."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from structlog.testing import capture_logs
from transformers import PreTrainedModel

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.protocol import Engine, Rows


@pytest.fixture
def folder(tmp_path: Path, plain_model: Callable[[str], PreTrainedModel]) -> Path:
    """A saved model."""
    plain_model("qwen3").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def code_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of checkpoints is copied to where it is forgotten."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    monkeypatch.setattr(sys, "path", [*sys.path])


def configure(folder: Path, **changes: Any) -> None:
    """Changes its configuration."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def load(folder: Path, **settings: Any) -> Engine:
    """An engine for it."""
    return load_engine(EngineSettings(model=str(folder), num_slots=1, **settings))


@pytest.mark.parametrize(
    ("quantisation", "package"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "gptqmodel"),
        ({"quant_method": "gptq", "bits": 4}, "optimum"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "accelerate"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed-tensors"),
    ],
)
def test_quantised_without_its_package(
    quantisation: dict[str, Any], package: str, folder: Path
) -> None:
    """Which package to install is said, before weights are read."""
    configure(folder, quantization_config=quantisation)
    (folder / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(ValueError, match=rf"pip install '?{package}.*where the actor runs"):
        load(folder)


def test_an_unknown_quantisation_is_not_ignored(folder: Path) -> None:
    """By its name, with those that are known."""
    configure(folder, quantization_config={"quant_method": "abacus", "bits": 3})
    with pytest.raises(ValueError, match=r"is quantised by 'abacus' .* it knows .*gptq"):
        load(folder)
    configure(folder, quantization_config={"bits": 3})
    with pytest.raises(ValueError, match="is quantised by None"):
        load(folder)


@pytest.mark.usefixtures("code_of_its_own")
def test_code_that_is_not_run_is_said(folder: Path) -> None:
    """A class of transformers stands in for that of the checkpoint, and the log names both; with permission, code runs."""
    (folder / "own.py").write_text(
        "from transformers import Qwen3ForCausalLM\nclass Own(Qwen3ForCausalLM):\n    pass\n"
    )
    configure(folder, auto_map={"AutoModelForCausalLM": "own.Own"})
    with capture_logs() as logs:
        load(folder)
    (warning,) = [each for each in logs if "code of its own" in each["event"]]
    assert warning["code"] == ["own.Own"]
    assert warning["instead"] == "transformers.models.qwen3.modeling_qwen3.Qwen3ForCausalLM"
    with capture_logs() as logs:
        load(folder, allow_remote_code=True)
    assert not [each for each in logs if "code of its own" in each["event"]]


def test_more_layers_than_configured(folder: Path) -> None:
    """They would be left out silently."""
    configure(folder, num_hidden_layers=1, layer_types=["full_attention"])
    with pytest.raises(ValueError, match=r"more than the 1 layers .* model\.layers\.1\."):
        load(folder)


def test_other_weights_without_a_place_are_said(folder: Path) -> None:
    """Not layers, so the model may be whole without them."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    save_file({**tensors, "value_head.3.weight": torch.zeros(2)}, file, {"format": "pt"})
    with capture_logs() as logs:
        load(folder)
    (warning,) = [each for each in logs if "have no place" in each["event"]]
    assert warning["among_them"] == ["value_head.3.weight"]


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_attention_that_is_not_installed_is_not_needed(key: str, folder: Path) -> None:
    """It is replaced anyway."""
    configure(folder, **{key: "flash_attention_2"})
    engine = load(folder)
    logits = engine.forward([Rows(slot=engine.acquire(), tokens=[1, 2], parents=[-1, 0])])
    assert logits.values_RV.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"num_attention_heads": None}, "cannot be loaded"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "cannot be loaded"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"num_attention_heads": 0}, "cannot be loaded"),
        ({"num_key_value_heads": 0}, "cannot be loaded"),
        ({"pad_token_id": 1_000}, "cannot be loaded: .*(?i:padding)"),
    ],
)
def test_configurations_that_contradict_themselves(
    changes: dict[str, Any], message: str, folder: Path
) -> None:
    """Whatever the configuration class raises, it is the documented error."""
    configure(folder, **changes)
    with pytest.raises(ValueError, match=message):
        load(folder)


@pytest.mark.usefixtures("code_of_its_own")
def test_a_package_that_is_missing(folder: Path) -> None:
    """Code of a checkpoint may import anything."""
    (folder / "own.py").write_text("import nowhere_to_be_found\nclass Own:\n    pass\n")
    configure(folder, auto_map={"AutoModelForCausalLM": "own.Own"})
    with pytest.raises(ValueError, match=r"nowhere_to_be_found.*install the package"):
        load(folder, allow_remote_code=True)
