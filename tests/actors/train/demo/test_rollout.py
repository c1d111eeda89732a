"""The target's own writing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from outrider.actors.train.demo.recipe import ModelShape, build
from outrider.actors.train.demo.rollout import continue_rows, rollout_chunks
from outrider.actors.train.text.packing import Tokens

SHAPE = ModelShape(hidden=16, layers=1, heads=2, key_value_heads=1, intermediate=16, vocabulary=64)
SPECIAL = {"bos": 0, "eos": 1, "pad": 2}
STREAM = np.arange(64, dtype=np.uint16)


def chunks(folder: Path, count: int, rows: int = 6) -> list[Tokens]:
    """Rollouts of a fixed model."""
    torch.manual_seed(0)
    model = build(SHAPE, SPECIAL)
    made = rollout_chunks(
        model, STREAM, folder, begin=20, chunks=count, rows=rows, length=12, prompt_length=4, seed=1
    )
    return list(made)


def test_rows_begin_with_their_prompts() -> None:
    """The prompt is kept and the row is filled."""
    torch.manual_seed(0)
    prompts_BL = torch.arange(20).reshape(5, 4)
    model = build(SHAPE, SPECIAL)
    rows_BL = continue_rows(model, prompts_BL, 9, torch.Generator().manual_seed(0))
    assert rows_BL.shape == (5, 9)
    assert torch.equal(prompts_BL, rows_BL[:, :4])


def test_every_other_prompt_opens_a_document(tmp_path: Path) -> None:
    """Drafts see openings as often as middles; the stream has one opening, at 20."""
    (rows,) = chunks(tmp_path, 1)
    assert rows[::2, :4].tolist() == [[20, 21, 22, 23]] * 3


def test_chunks_are_read_back(tmp_path: Path) -> None:
    """A second run finds what the first wrote and goes on from there."""
    first = chunks(tmp_path / "a", 1)
    (tmp_path / "a" / "1-6x12-0001.npy.partial").write_bytes(b"half")
    both = chunks(tmp_path / "a", 2)
    fresh = chunks(tmp_path / "b", 2)
    assert np.array_equal(first[0], both[0])
    assert np.array_equal(fresh[1], both[1])


def test_another_recipe_does_not_read_these_chunks(tmp_path: Path) -> None:
    """Chunks of another size in the same folder are another recipe's."""
    chunks(tmp_path, 1)
    (other,) = chunks(tmp_path, 1, rows=4)
    assert other.shape == (4, 12)
