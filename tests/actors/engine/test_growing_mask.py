"""Masks that grow with their tree: equal to masks built from nothing, whatever happens to the tree."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from outrider.actors.engine.attention.pass_layout import sight
from outrider.actors.engine.kv.growing_mask import GrowingMask, fits
from outrider.actors.engine.kv.slots import SlotTable
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.protocol import Engine, Rows
from outrider.actors.speculation.trees.level_shapes import LevelShape

MAX_CONTEXT = 200


class Gardener:
    """Grows a tree by passes as drafters do, cuts it as verdicts do, and now and then does something else."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.parents: list[int] = []

    def rows(self, mask: str = "sliced") -> Rows:
        """New rows below rows that were run, or, seldom, below each other."""
        count = self.random.randint(1, 5)
        num_run = len(self.parents)
        own = self.random.random() < 0.15
        parents = [
            self.random.randint(-1, num_run - 1 + (new if own else 0)) for new in range(count)
        ]
        return Rows(slot=0, tokens=[1] * count, parents=parents, mask=mask)  # type: ignore[arg-type]

    def verdict(self) -> tuple[list[int], list[int]]:
        """A path, and some of what is below it."""
        path: list[int] = []
        end = -1
        for _ in range(self.random.randint(0, 3)):
            children = [row for row, parent in enumerate(self.parents) if parent == end]
            if not children:
                break
            end = self.random.choice(children)
            path.append(end)
        keep: list[int] = []
        for row, parent in enumerate(self.parents):
            if (parent == end or parent in keep) and self.random.random() < 0.8:
                keep.append(row)
        place = {end: -1, **{row: new for new, row in enumerate(keep)}}
        self.parents = [place[self.parents[row]] for row in keep]
        return path, keep


@pytest.mark.parametrize("seed", range(20))
def test_a_slice_is_the_mask_that_would_be_built(seed: int) -> None:
    """Over passes, verdicts, failed passes, passes without a slice, truncations and sessions that end, bit for bit."""
    table = SlotTable(num_slots=1, max_context=MAX_CONTEXT, max_scratch=40, vocab_size=9)
    table.acquire()
    gardener = Gardener(seed)
    num_sliced = 0
    for _ in range(200):
        chance = gardener.random.random()
        cached = table.taken(0).cached
        if chance < 0.3 or len(gardener.parents) > 30:
            table.rebase(0, *gardener.verdict())
            continue
        if chance < 0.35 or cached > MAX_CONTEXT - 60:
            table.truncate(0, gardener.random.randint(0, cached // 2))
            gardener.parents.clear()
            continue
        if chance > 0.97:
            table.release(0)
            table.acquire()
            gardener.parents.clear()
        rows = gardener.rows("built" if chance < 0.45 else "sliced")
        (growth,) = table.check([rows])
        seen = sight(growth, window=None)
        plain = sight(replace(growth, mask=None), window=None)
        if growth.mask is not None and seen.mask_NS is not None:
            num_sliced += 1
            assert plain.mask_NS is not None
            assert np.array_equal(seen.mask_NS, plain.mask_NS)
            assert np.shares_memory(seen.mask_NS, growth.mask)
        if gardener.random.random() < 0.1:
            continue  # the pass failed
        table.grow(growth)
        gardener.parents.extend(int(parent) for parent in rows.parents)
    assert num_sliced > 40


def test_levels_of_a_fixed_shape_are_slices_of_its_largest_mask() -> None:
    """A tree of a k-configuration, run level by level, takes the rectangles that Lu et al. cut from one mask."""
    shape = LevelShape((3, 2, 2))
    parents = shape.parents_N
    whole = GrowingMask(max_context=10, max_scratch=shape.num_nodes)
    built = np.full((shape.num_nodes, shape.num_nodes), -np.inf, dtype=np.float32)
    lineages: list[int] = []
    for node, parent in enumerate(parents):
        lineages.append((lineages[parent] if parent >= 0 else 0) | 1 << node)
        for other in range(node + 1):
            if lineages[node] >> other & 1:
                built[node, other] = 0.0
    start = 0
    for size in shape.level_sizes:
        end = start + size
        got = whole.slice(cached=7, parents=parents[start:end], lineages=lineages[:start])
        assert np.array_equal(got[:, :7], np.zeros((size, 7), dtype=np.float32))
        assert np.array_equal(got[:, 7:], built[start:end, :end])
        start = end


def test_the_next_session_gets_the_mask_of_the_place() -> None:
    """It takes megabytes, and to make one for each text would take longer than a draft pass."""
    table = SlotTable(num_slots=2, max_context=99, max_scratch=9, vocab_size=9)
    masks = []
    for _ in range(2):
        slot = table.acquire()
        (growth,) = table.check([Rows(slot=slot, tokens=[1, 1], parents=[-1, -1])])
        assert growth.mask is not None
        masks.append(growth.mask)
        table.grow(growth)
        table.release(slot)
    assert np.shares_memory(masks[0], masks[1])


def test_masks_that_would_take_too_much_memory_are_not_kept() -> None:
    """A long context with many slots falls back to building; so does a table that was told to."""
    assert fits(num_slots=8, max_context=2048, max_scratch=256)
    assert not fits(num_slots=8, max_context=131072, max_scratch=256)
    for table in (
        SlotTable(num_slots=8, max_context=131072, max_scratch=256, vocab_size=9),
        SlotTable(num_slots=1, max_context=99, max_scratch=9, vocab_size=9, keeps_masks=False),
    ):
        table.acquire()
        assert table.check([Rows(slot=0, tokens=[1, 1], parents=[-1, -1])])[0].mask is None


@pytest.mark.parametrize("attention", ["each", "stretches", "together"])
def test_a_model_gives_the_same_logits_with_both(
    attention: str, make_engine: Callable[..., TransformersEngine]
) -> None:
    """Two sessions grown together, with verdicts in between: equal bit for bit, on both attention paths."""
    engines = [make_engine("llama", attention=attention, max_scratch=60) for _ in range(2)]
    results: list[list[torch.Tensor]] = []
    for engine, mask in zip(engines, ("sliced", "built"), strict=True):
        results.append(_grown(engine, mask))
    for sliced, built in zip(*results, strict=True):
        assert torch.equal(sliced, built)


def _grown(engine: Engine, mask: str) -> list[torch.Tensor]:
    """Logits of every pass."""
    gardeners = [Gardener(seed) for seed in range(2)]
    logits: list[torch.Tensor] = []
    for slot in range(2):
        assert engine.acquire() == slot
    for turn in range(12):
        batch: list[Rows] = []
        for slot, gardener in enumerate(gardeners):
            rows = replace(gardener.rows(mask), slot=slot)
            tokens = [gardener.random.randint(0, 40) for _ in rows.tokens]
            batch.append(replace(rows, tokens=tokens))
            gardener.parents.extend(int(parent) for parent in rows.parents)
        logits.append(engine.forward(batch).values_RV.clone())
        if turn % 3 == 2:
            for slot, gardener in enumerate(gardeners):
                engine.rebase(slot, *gardener.verdict())
    return logits
