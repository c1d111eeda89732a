"""How much memory there is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.families.family_models import model_of
from outrider.actors.engine.checkpoint import room as module
from outrider.actors.engine.checkpoint.model_facts import memory_facts
from outrider.actors.engine.checkpoint.room import device_memory
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.sizing import USUAL_SLOTS, Memory
from outrider.actors.engine.models.transformers_engine import TransformersEngine

CPU = torch.device("cpu")


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container its limit is what there is, whatever is used already."""
    monkeypatch.setattr(module, "CGROUP", tmp_path)
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("2999\n")
    assert device_memory(CPU).total == 3000
    (tmp_path / "memory.max").write_text("max\n")
    unlimited = device_memory(CPU).total
    assert unlimited is None or unlimited > 3000


def test_a_share_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free, but no more than the share, of which the actor's own weights are a part."""
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (700, 1000))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    cuda = torch.device("cuda:0")
    assert device_memory(cuda).total == 700
    assert device_memory(cuda, share=0.5).total == 400


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3_text", "gemma4_unified_text"])
def test_a_row_takes_what_the_configuration_tells(name: str) -> None:
    """Also where layers have heads of other sizes."""
    model = model_of(name)
    settings = EngineSettings(model=name, num_slots=1, max_context=16, max_scratch=8)
    engine = TransformersEngine(model, settings, name=name, fingerprint="none")
    facts = memory_facts(model.config, max_context=16, itemsize=4, weight_bytes=0)
    assert facts.row_bytes == engine.storage.row_bytes


def test_slots_are_counted_by_what_layers_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration says that sliding layers of this family have twice the heads: its slots still stay in the memory there is."""
    model = model_of("mimo_v2_flash")
    room = 330_000
    weights = sum(each.nbytes for each in [*model.parameters(), *model.buffers()])
    memory = Memory(total=weights + room, name="a device", is_lazy=False)
    monkeypatch.setattr(module, "device_memory", lambda device, share: memory)
    settings = EngineSettings(model="m", max_context=32, max_scratch=1)
    engine = TransformersEngine(model, settings, name="m", fingerprint="none")
    assert 1 < engine.room.num_slots < USUAL_SLOTS
    assert engine.room.num_slots * (32 + 1) * engine.storage.row_bytes <= room
