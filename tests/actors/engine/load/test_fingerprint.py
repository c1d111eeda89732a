"""Digests of models."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from outrider.actors.engine.load.fingerprint import hashing_beside, model_fingerprint


def test_files_decide_where_there_are_some(
    tmp_path: Path, plain_model: Callable[[str], PreTrainedModel]
) -> None:
    """The same model saved twice is the same; one changed weight or configuration value makes another."""
    model = copy.deepcopy(plain_model("llama"))
    digests = []
    for name in ("a", "b"):
        model.save_pretrained(tmp_path / name)
        digests.append(model_fingerprint(model, tmp_path / name))
    assert digests[0] == digests[1]
    model.config.rms_norm_eps *= 2
    assert model_fingerprint(model, tmp_path / "a") != digests[0]
    model.config.rms_norm_eps /= 2
    with torch.no_grad():
        model.get_parameter("lm_head.weight")[0, 0] += 1.0
    model.save_pretrained(tmp_path / "a")
    os.utime(tmp_path / "a" / "model.safetensors", (1, 1))
    assert model_fingerprint(model, tmp_path / "a") != digests[0]


def test_tensors_decide_where_there_are_no_files(
    tmp_path: Path, plain_model: Callable[[str], PreTrainedModel]
) -> None:
    """Without weight files, equal tensors are the same model, and one changed weight makes another."""
    model = plain_model("llama")
    other = copy.deepcopy(model)
    assert model_fingerprint(model, None) == model_fingerprint(other, tmp_path)
    with torch.no_grad():
        other.get_parameter("lm_head.weight")[0, 0] += 1.0
    assert model_fingerprint(model, None) != model_fingerprint(other, None)
    half = copy.deepcopy(model).to(torch.bfloat16)  # type: ignore[arg-type]
    assert model_fingerprint(model, None) != model_fingerprint(half, None)


def test_hashing_beside_changes_nothing(
    tmp_path: Path, plain_model: Callable[[str], PreTrainedModel]
) -> None:
    """Hashed on a thread or not, a folder has one digest; a folder without files has none to hash; an error of the block stays it."""
    model = plain_model("llama")
    model.save_pretrained(tmp_path / "a")
    model.save_pretrained(tmp_path / "b")
    with hashing_beside(tmp_path / "a"):
        pass
    assert model_fingerprint(model, tmp_path / "a") == model_fingerprint(model, tmp_path / "b")
    for folder in (None, tmp_path / "nowhere"):
        with hashing_beside(folder):
            pass
    with pytest.raises(KeyError), hashing_beside(tmp_path / "b"):
        raise KeyError
