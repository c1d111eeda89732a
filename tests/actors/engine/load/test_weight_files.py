"""Which files of a folder count as a model's weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from outrider.actors.engine.checkpoint.room import room_for
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.fingerprint import model_fingerprint


@pytest.mark.parametrize("shard_size", ["1GB", "20KB"], ids=["whole", "shards"])
def test_weights_beside_those_that_are_loaded_count_for_nothing(
    shard_size: str, tmp_path: Path, plain_model: Callable[[str], PreTrainedModel]
) -> None:
    """A repository may bring its weights once more in a form of its own: they take no room, and make no other model."""
    model = plain_model("llama")
    model.save_pretrained(tmp_path, max_shard_size=shard_size)
    stored = {name: each.clone() for name, each in model.state_dict().items()}
    size = sum(each.nbytes for each in stored.values())

    def needed() -> int:
        settings = EngineSettings(model="tiny", num_slots=1, max_context=16, max_scratch=8)
        room = room_for(
            model.config, settings, device=torch.device("cpu"), name="tiny", folder=tmp_path
        )
        return room.needed

    before, fingerprint = needed(), model_fingerprint(model, tmp_path)
    assert before > size
    save_file(stored, tmp_path / "consolidated.safetensors")
    assert needed() == before
    assert model_fingerprint(model, tmp_path) == fingerprint


def test_weights_of_another_kind_make_the_model(
    tmp_path: Path, plain_model: Callable[[str], PreTrainedModel]
) -> None:
    """Where the weights are in files of PyTorch's own, something else in safetensors does not stand for them."""
    model = plain_model("llama")
    fingerprint = model_fingerprint(model, tmp_path)
    save_file({"adapter": torch.zeros(3)}, tmp_path / "adapter_model.safetensors")
    assert model_fingerprint(model, tmp_path) == fingerprint
