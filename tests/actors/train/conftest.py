"""A tiny corpus in the documented form, and a recipe that trains on it in seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from outrider.actors.train.demo.recipe import LayerGrowth, ModelShape, Recipe, Rollouts
from outrider.actors.train.loop.schedule import Schedule
from outrider.actors.train.text.corpus import CorpusSource
from outrider.actors.train.text.sources import read_conversations, read_prose


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tests share the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_data(tmp_path: Path) -> Path:
    """A data folder with two sources of a few hundred short records."""
    folder = tmp_path / "data"
    folder.mkdir()
    prose = [
        {"book": "b", "module": f"m{i}", "title": f"Part {i}", "text": f"The number {i} follows."}
        for i in range(300)
    ]
    chat = [
        {
            "messages": [
                {"role": "user", "content": f"What is {i} plus 1?"},
                {"role": "assistant", "content": f"{i + 1}"},
            ]
        }
        for i in range(300)
    ]
    for name, records in (("prose.jsonl", prose), ("chat.jsonl", chat)):
        lines = [json.dumps(record) for record in records]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def tiny_recipe() -> Recipe:
    """Models of a few thousand parameters and a dozen steps."""
    shape = ModelShape(
        hidden=16, layers=2, heads=2, key_value_heads=1, intermediate=16, vocabulary=300
    )
    schedule = Schedule(
        steps=12, tokens_per_step=128, row_length=32, long_row_length=64, warmup=2, long_every=4
    )
    return Recipe(
        sources=(
            CorpusSource("prose", ("prose.jsonl",), 0.5, read_prose),
            CorpusSource("chat", ("chat.jsonl",), 0.5, read_conversations),
        ),
        shapes=dict.fromkeys(("target", "draft", "draft-small"), shape),
        schedules=dict.fromkeys(("target", "draft", "draft-small"), schedule),
        growth=(LayerGrowth("target-shallow", 1, replace(schedule, steps=4, decay_share=0.0)),),
        rollouts=Rollouts(chunks=2, rows=4, length=32, prompt_length=8),
    )
