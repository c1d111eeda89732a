"""What rows see, against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.actors.engine.attention.attention_mask import (
    additive,
    first_seen,
    mask_bits,
    num_words,
)
from outrider.actors.engine.attention.pass_layout import plan_pass
from outrider.actors.engine.kv.slots import SlotTable
from outrider.actors.engine.protocol import Batch, Moves, Rows


@st.composite
def grown_tables(draw: st.DrawFn) -> tuple[SlotTable, Rows, list[int]]:
    """A slot with cached and scratch rows, rows to add, and all parents."""
    table = SlotTable(num_slots=1, max_context=99, max_scratch=40, vocab_size=9)
    table.acquire()
    cached = draw(st.integers(0, 20))
    if cached:
        chain = Rows(slot=0, tokens=[0] * cached, parents=range(-1, cached - 1))
        table.grow(table.check([chain]))
        table.rebase(Moves.one(0, range(cached), ()))
    parents: list[int] = []
    for row in range(draw(st.integers(1, 12))):
        # Mostly chains, which have masks of their own.
        parents.append(draw(st.sampled_from([row - 1, draw(st.integers(-1, row - 1))])))
    before = draw(st.integers(0, len(parents) - 1))
    if before:
        table.grow(table.check([Rows(slot=0, tokens=[0] * before, parents=parents[:before])]))
    new = parents[before:]
    return table, Rows(slot=0, tokens=[1] * len(new), parents=new), parents


@settings(max_examples=150, deadline=None)
@given(grown_tables(), st.one_of(st.none(), st.integers(1, 30)), st.booleans())
def test_a_row_sees_cached_rows_ancestors_and_itself_within_the_window(
    grown: tuple[SlotTable, Rows, list[int]], window: int | None, from_start: bool
) -> None:
    """Each row sees exactly the rows of its own text whose position is in the window."""
    table, rows, parents = grown
    added = table.check([rows])
    cached, scratch, total = (
        int(each[0]) for each in (added.cached_B, added.scratch_B, added.totals_B)
    )
    first = 0 if from_start else int(first_seen(added, window)[0])
    rows_Q = np.arange(len(rows.tokens))
    bits = mask_bits(
        added,
        rows_Q,
        firsts_Q=np.full(len(rows_Q), first),
        words=num_words(total - first),
        window=window,
    )
    mask_NS = additive(bits, total - first)
    assert mask_NS.shape == (len(rows.tokens), total - first)
    for new, row in enumerate(mask_NS.tolist()):
        path, node = [], scratch + new
        while node >= 0:
            path.append(node)
            node = parents[node]
        text = [*range(cached), *(cached + node for node in reversed(path))]
        seen = set(text if window is None else text[-window:])
        expected = [0.0 if place in seen else -float("inf") for place in range(total)]
        assert row == expected[first:]
        assert not seen & set(range(first))


def test_a_window_shows_the_kernel_few_rows() -> None:
    """Rows that no new row can see are not handed to the kernel."""
    table = SlotTable(num_slots=1, max_context=99, max_scratch=40, vocab_size=9)
    table.acquire()
    table.grow(table.check([Rows(slot=0, tokens=[0] * 30, parents=range(-1, 29))]))
    table.rebase(Moves.one(0, range(30), ()))
    row = table.check([Rows(slot=0, tokens=[1], parents=[-1])])
    assert first_seen(row, 8).tolist() == [30 - 7]


def test_plan_packs_without_padding() -> None:
    """Rows of all sessions lie one after another, with their own positions."""
    table = SlotTable(num_slots=2, max_context=99, max_scratch=40, vocab_size=99)
    table.acquire()
    table.acquire()
    table.grow(table.check([Rows(slot=1, tokens=[0] * 5, parents=range(-1, 4))]))
    table.rebase(Moves.one(1, range(5), ()))
    batch = [
        Rows(slot=1, tokens=[10, 11, 12], parents=[-1, -1, 0]),
        Rows(slot=0, tokens=[20, 21], parents=[-1, 0], logits="last"),
    ]
    plan = plan_pass(Batch.of(batch), table.check(batch))
    assert plan.added.tokens_R.tolist() == [10, 11, 12, 20, 21]
    assert plan.positions().tolist() == [5, 5, 6, 0, 1]
    assert plan.wanted_W.tolist() == [0, 1, 2, 4]
    assert (plan.offsets, plan.added.starts.tolist(), plan.num_rows) == ((0, 3, 4), [0, 3, 5], 5)
