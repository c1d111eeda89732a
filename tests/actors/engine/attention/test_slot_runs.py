"""Sessions that share a kernel call on views of neighbouring slots."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from tests.actors.engine.script import VOCAB_SIZE, PlainLogits, Script, worst_error
from transformers import PreTrainedModel

from outrider.actors.engine.attention.pass_layout import NOBODY, PassLayout, plan_pass
from outrider.actors.engine.attention.slot_runs import (
    FEWEST_SESSIONS,
    MOST_ROWS,
    WIDEST_GAP,
    slot_runs_of,
)
from outrider.actors.engine.kv.slots import SlotTable
from outrider.actors.engine.kv.storage import Storage
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.protocol import Batch, Moves, Rows

MakeEngine = Callable[..., TransformersEngine]


def planned(counts: Sequence[tuple[int, int, int]]) -> PassLayout:
    """A pass of sessions given as (slot, cached rows, new rows)."""
    table = SlotTable(num_slots=64, max_context=2048, max_scratch=512, vocab_size=9)
    batch = []
    for slot, cached, new in counts:
        table.acquire(slot)
        while (rows := min(512, cached - table.cached(slot))) > 0:
            chunk = Rows(slot=slot, tokens=[1] * rows, parents=range(-1, rows - 1), logits="none")
            table.grow(table.check([chunk]))
            table.rebase(Moves.one(slot, range(rows), ()))
        batch.append(Rows(slot=slot, tokens=[1] * new, parents=range(-1, new - 1)))
    return plan_pass(Batch.of(batch), table.check(batch))


def split(counts: Sequence[tuple[int, int, int]]) -> tuple[list[list[int]], list[int]]:
    """Slots of each run, and of who attends alone."""
    plan = planned(counts)
    found, alone = slot_runs_of(plan)
    slots = plan.added.slots_B.tolist()
    for run in found:
        for entry, index in enumerate(run.entries):
            assert index == NOBODY or slots[index] == run.first_slot + entry
    return [[slots[i] for i in run.members] for run in found], [slots[i] for i in alone]


def test_neighbours_share_a_call() -> None:
    """In whatever order they come; small gaps do not matter."""
    assert split([(5, 30, 1), (2, 100, 1), (9, 7, 1)]) == ([[2, 5, 9]], [])


def test_too_few_attend_alone() -> None:
    """A run has a price."""
    few = [(slot, 30, 1) for slot in range(FEWEST_SESSIONS - 1)]
    assert split(few) == ([], list(range(FEWEST_SESSIONS - 1)))


def test_wide_gaps_part() -> None:
    """What is computed for slots of nobody is bounded."""
    far = 3 + WIDEST_GAP + 1
    counts = [(slot, 30, 1) for slot in (0, 1, 2, far, far + 1, far + 2)]
    assert split(counts) == ([[0, 1, 2], [far, far + 1, far + 2]], [])
    assert split([(slot, 30, 1) for slot in (0, 1, 2 + WIDEST_GAP)]) == (
        [[0, 1, 2 + WIDEST_GAP]],
        [],
    )


def test_only_alike_sessions_are_padded_to_each_other() -> None:
    """Long ones among short ones, large trees among small ones, and prompts stay apart."""
    short, long = [(slot, 50, 1) for slot in (0, 2, 4)], [(slot, 1500, 1) for slot in (1, 3, 5)]
    assert split([*short, *long]) == ([[0, 2, 4], [1, 3, 5]], [])
    assert split([*short, (1, 50, 9), (6, 0, MOST_ROWS + 1)]) == ([[0, 2, 4]], [1, 6])


@pytest.mark.parametrize("seed", range(3))
def test_random_trees_equal_plain_forward(
    family: str, seed: int, make_engine: MakeEngine, plain_logits: PlainLogits
) -> None:
    """Many sessions with trees, chunks, windows and gaps; the logits are those of each branch alone."""
    engine = make_engine(family, num_slots=12)
    script = Script(engine, seed, num_sessions=10)
    assert worst_error(script, family, plain_logits) < 1e-5


def logits_after_a_broken_session(engine: TransformersEngine) -> torch.Tensor:
    """Of three sessions that share a call, the shortest in a slot whose rows were no numbers before."""
    rng = random.Random(1)
    engine.acquire(0)
    engine.forward([Rows(slot=0, tokens=[3] * 20, parents=range(-1, 19), logits="none")])
    with torch.inference_mode():
        for tensor in [*engine.storage.keys, *engine.storage.values]:
            tensor[0, :20] = float("nan")
    engine.release(0)
    slots = []
    for slot, size in enumerate((2, 12, 14)):
        slots.append(engine.acquire(slot))
        prompt = [rng.randrange(VOCAB_SIZE) for _ in range(size)]
        engine.forward([Rows(slot=slot, tokens=prompt, parents=range(-1, size - 1), logits="none")])
        engine.rebase(Moves.one(slot, range(size)))
    batch = [Rows(slot=slot, tokens=[5], parents=[-1]) for slot in slots]
    return engine.forward(batch).values_RV


def test_what_a_slot_held_before_does_not_matter(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if it was no number: a session that went wrong harms nobody after it. Without clearing it would, for the three
    share a call."""
    assert torch.isfinite(logits_after_a_broken_session(make_engine("llama"))).all()
    monkeypatch.setattr(Storage, "clear", lambda *_: None)
    assert not torch.isfinite(logits_after_a_broken_session(make_engine("llama"))).all()


def with_long_context(model: PreTrainedModel) -> None:
    """Positions by rotation have no table that ends."""
    model.config.max_position_embeddings = 256


def test_a_long_session_before_a_run_with_a_gap_harms_nobody(make_engine: MakeEngine) -> None:
    """Short sessions share a call over a slot of nobody, a far longer one attends alone: logits are those of each by itself."""
    engine = make_engine("llama", num_slots=6, max_scratch=64, prepare=with_long_context)
    lengths = {5: 160, 0: 20, 1: 30, 3: 40}
    for slot, length in lengths.items():
        engine.acquire(slot)
        for start in range(0, length, 64):
            size = min(64, length - start)
            tokens = [(slot + start + row) % VOCAB_SIZE for row in range(size)]
            engine.forward([Rows(slot=slot, tokens=tokens, parents=range(-1, size - 1))])
            engine.rebase(Moves.one(slot, range(size)))
    batch = [Rows(slot=slot, tokens=[7], parents=[-1]) for slot in lengths]
    together = engine.forward(batch).values_RV
    for slot in lengths:
        engine.rebase(Moves.one(slot, ()))
    alone = torch.cat([engine.forward([rows]).values_RV for rows in batch])
    assert (together - alone).abs().max() < 1e-5
