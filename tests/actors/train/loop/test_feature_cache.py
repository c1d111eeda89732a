"""The cache of hidden states: what goes in comes out, also after a kill, and never for another key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.actors.train.loop.full_disks import full_disk

from outrider.actors.train.features.feature_cache import (
    FEATURES,
    INDEX,
    CacheKey,
    FeatureCache,
    shuffled,
)
from outrider.actors.train.training_errors import ResumeError

KEY = CacheKey(target="t", layers=("norm",), width=6, row_length=5, first=2, text="made up")


def rows(
    count: int, seed: int
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int32]], torch.Tensor]:
    """Tokens and states that bfloat16 holds exactly."""
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(count, 5, 6, generator=generator).bfloat16().float()
    tokens = torch.randint(0, 70_000, (count, 5), generator=generator)
    return tokens.numpy().astype(np.int32), states


@pytest.mark.parametrize("is_half", [True, False])
def test_a_run_that_was_killed_goes_on(tmp_path: Path, is_half: bool) -> None:
    """Opened again, the cache has every row that was finished, and takes the others."""
    key = replace(KEY, is_half=is_half)
    first, second = rows(3, seed=1), rows(4, seed=2)
    FeatureCache(tmp_path / "c", key, 5).append(*first)
    again = FeatureCache(tmp_path / "c", key, 5)
    assert again.num_rows == 3
    again.append(*second)
    assert again.num_rows == again.room
    tokens_BL, states_BLD = FeatureCache(tmp_path / "c", key, 5).rows(np.array([4, 0]))
    assert tokens_BL.tolist() == [second[0][1].tolist(), first[0][0].tolist()]
    assert torch.equal(states_BLD, torch.stack([second[1][1], first[1][0]]))


def test_a_full_disk_is_an_error_and_costs_no_row(tmp_path: Path) -> None:
    """Once there is room, the cache goes on behind the rows that were finished."""
    cache = FeatureCache(tmp_path / "c", KEY, 5)
    cache.append(*rows(3, seed=1))
    index = tmp_path / "c" / INDEX
    states = tmp_path / "c" / FEATURES
    room = (index.stat().st_size + states.stat().st_size) // 2
    with full_disk(room), pytest.raises(OSError, match="File too large"):
        cache.append(*rows(2, seed=2))
    again = FeatureCache(tmp_path / "c", KEY, 5)
    assert again.num_rows == 3
    again.append(*rows(2, seed=2))
    states_BLD = again.rows(np.arange(5))[1]
    assert torch.equal(states_BLD, torch.cat([rows(3, seed=1)[1], rows(2, seed=2)[1]]))


def test_another_key_begins_anew(tmp_path: Path) -> None:
    """States of another target are not mistaken for this one's, and not thrown away unasked."""
    FeatureCache(tmp_path / "c", KEY, 5).append(*rows(3, seed=1))
    other = replace(KEY, target="other")
    with pytest.raises(ResumeError, match='target: "t", this one has target: "other"'):
        FeatureCache(tmp_path / "c", other, 5)
    assert FeatureCache(tmp_path / "c", KEY, 5).num_rows == 3
    assert FeatureCache(tmp_path / "c", other, 5, resume=False).num_rows == 0


@pytest.mark.parametrize("name", ["tokens.npy", "features.npy"])
def test_files_that_are_not_what_the_index_says(tmp_path: Path, name: str) -> None:
    """Gone or cut short: named, with what to do."""
    FeatureCache(tmp_path / "c", KEY, 5).append(*rows(3, seed=1))
    file = tmp_path / "c" / name
    for content in (file.read_bytes()[:150], b""):
        file.write_bytes(content)
        with pytest.raises(ResumeError, match="delete the folder"):
            FeatureCache(tmp_path / "c", KEY, 5)
    file.unlink()
    with pytest.raises(ResumeError, match="delete the folder"):
        FeatureCache(tmp_path / "c", KEY, 5)


@pytest.mark.parametrize("content", ["{", "", "[]", "null", '{"rows": null}'])
def test_a_broken_index_is_named(tmp_path: Path, content: str) -> None:
    """A file that is no index is refused, not overwritten."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "cache.json").write_text(content)
    with pytest.raises(ResumeError, match=r"cache.json: unreadable"):
        FeatureCache(tmp_path / "c", KEY, 5)


def test_every_row_is_read_before_any_comes_again() -> None:
    """Steps go through all rows in an order that the seed fixes."""
    steps = [shuffled(step, 3, 7, seed=5) for step in range(14)]
    every = np.concatenate(steps)
    for first in range(0, 42, 7):
        assert sorted(every[first : first + 7].tolist()) == list(range(7))
    assert [s.tolist() for s in steps] == [
        shuffled(step, 3, 7, seed=5).tolist() for step in range(14)
    ]
    assert every.tolist() != np.concatenate([shuffled(s, 3, 7, seed=6) for s in range(14)]).tolist()
