"""The batches that drafts learn from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from outrider.actors.train.demo.recipe import SCHEDULES, ModelShape, Rollouts, build
from outrider.actors.train.demo.target_cache import Kept, batches_of, keep_chunk, num_batches
from outrider.actors.train.loop.schedule import Schedule

SCHEDULE = Schedule(steps=9, tokens_per_step=64, row_length=8, long_row_length=32, long_every=4)
TEXT = np.arange(64 * 40, dtype=np.uint16)
WRITTEN = np.arange(50_000, 50_000 + 24 * 8, dtype=np.uint16).reshape(24, 8)


def test_batches_are_half_text_and_half_writing_and_some_are_long() -> None:
    """Every row of the writing once, in order; text from the batch's own place in the stream."""
    batches = batches_of(WRITTEN, TEXT, SCHEDULE, 0)
    assert [rows.shape for rows in batches] == [(8, 8), (2, 32)] + [(8, 8)] * 3 + [(2, 32)] + [
        (8, 8)
    ] * 2
    written = np.concatenate([rows[4:] for rows in batches if rows.shape[1] == 8])
    assert np.array_equal(written, WRITTEN)
    for index, rows in enumerate(batches):
        text = rows[:4] if rows.shape[1] == 8 else rows
        assert text.min() // 64 == text.max() // 64 == index


@pytest.mark.parametrize("rows", [1, 4, 5, 24, 40])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_the_number_of_batches_is_bounded(rows: int, first: int) -> None:
    """So much text is asked for, and no batch is left without."""
    written = np.zeros((rows, 8), dtype=np.uint16)
    assert len(batches_of(written, TEXT, SCHEDULE, first)) <= num_batches(rows, SCHEDULE)


def test_a_chunk_of_the_recipe_fills_its_batches() -> None:
    """Long batches keep their places from chunk to chunk, as the steps' measured times assume."""
    schedule, plan = SCHEDULES["draft"], Rollouts()
    assert plan.length == schedule.row_length
    text = np.zeros(schedule.tokens_per_step * 40, dtype=np.uint16)
    written = np.zeros((plan.rows, plan.length), dtype=np.uint16)
    batches = batches_of(written, text, schedule, 0)
    assert len(batches) % schedule.long_every == 0
    assert all(rows.size == schedule.tokens_per_step for rows in batches)


def test_a_chunk_is_read_back(tmp_path: Path) -> None:
    """Byte for byte, and half a file is not taken for one."""
    torch.manual_seed(0)
    shape = ModelShape(
        hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=300
    )
    target = build(shape, {"bos": 0, "eos": 1, "pad": 2})
    batches = [np.arange(64, dtype=np.uint16).reshape(s) for s in ((8, 8), (2, 32))]
    path = tmp_path / "x" / "kept-0000.safetensors"
    made = keep_chunk(target, batches, path)
    read = keep_chunk(target, [], path)
    assert len(made) == len(read) == 2
    for one, other in zip(made, read, strict=True):
        for name in Kept.__slots__:
            assert np.array_equal(getattr(one, name), getattr(other, name))
    path.rename(path.with_name(path.name + ".partial"))
    assert keep_chunk(target, [], path) == []
