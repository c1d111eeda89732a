"""Slots that keep what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.kv.prefix_slots import SMALLEST_PREFIX, SPARED_ROWS, PrefixSlots
from outrider.actors.engine.protocol import Moves, NoFreeSlot, Rows
from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table

VOCAB = 5


class Bench:
    """Slots of a table, and sessions that run their texts."""

    def __init__(self, *, num_slots: int = 3, is_shared: bool = True) -> None:
        room = EngineSettings(model="t", num_slots=num_slots, max_scratch=256, max_context=4096)
        self.engine = TabularEngine(random_table(VOCAB, 2, seed=1), room)
        self.slots = PrefixSlots(self.engine, is_shared=is_shared)

    def run(self, slot: int, tokens: Sequence[int]) -> None:
        """Computes rows for tokens and commits them."""
        parents = range(-1, len(tokens) - 1)
        self.engine.forward([Rows(slot=slot, tokens=tokens, parents=parents)])
        self.engine.rebase(Moves.one(slot, range(len(tokens))))

    def live(self, text: Sequence[int], *, group: int = 0, rows: int | None = None) -> int:
        """A session with its text computed, or `rows` tokens of it."""
        slot = self.slots.take(text, group=group)
        assert self.slots.start(slot, may_wait=False)
        done = self.engine.cached(slot)
        self.run(slot, text[done:rows])
        return slot

    def finished(self, text: Sequence[int]) -> int:
        """A session that ran and ended."""
        slot = self.live(text)
        self.slots.release(slot, text)
        return slot


def text(seed: int, length: int) -> list[int]:
    """Some tokens; those of another seed differ from the first on."""
    return [(seed + i * i) % VOCAB for i in range(length)]


def test_the_next_turn_goes_on_in_the_same_slot() -> None:
    """A text that continues a kept one takes its slot over, all rows but the last token's."""
    bench = Bench()
    first = text(1, 60)
    slot = bench.finished(first)
    assert (bench.slots.num_free, bench.slots.num_kept) == (3, 1)
    assert bench.slots.take([*first, 1, 2, 3]) == slot
    assert (bench.engine.cached(slot), bench.slots.num_kept) == (60, 0)
    bench.slots.release(slot, [*first, 1, 2, 3])
    assert bench.slots.take(first) == slot
    assert bench.engine.cached(slot) == 59


def test_a_shared_beginning_is_copied_while_there_is_room() -> None:
    """The kept text stays whole for its own next turn."""
    bench = Bench()
    system, first, second = text(1, 40), text(2, 50), text(3, 30)
    kept = bench.finished([*system, *first])
    other = bench.slots.take([*system, *second])
    assert other != kept
    assert (bench.engine.cached(other), bench.slots.num_kept) == (40, 1)
    assert bench.slots.take([*system, *first, 1]) == kept
    assert bench.engine.cached(kept) == 90


def test_a_live_session_is_copied_as_far_as_it_got() -> None:
    """Its slot is not taken, and rows that it has not computed are not counted."""
    bench = Bench()
    busy = bench.live(text(1, 80), rows=50)
    other = bench.slots.take(text(1, 80))
    assert other != busy
    assert (bench.engine.cached(busy), bench.engine.cached(other)) == (50, 50)


def test_an_ending_written_otherwise_is_cut() -> None:
    """A few rows at the end are not worth a copy; many are."""
    bench = Bench()
    first = text(1, 100)
    slot = bench.finished(first)
    assert bench.slots.take([*first[: 100 - SPARED_ROWS], *text(4, 9)]) == slot
    assert bench.engine.cached(slot) == 100 - SPARED_ROWS
    bench.slots.release(slot, first[: 100 - SPARED_ROWS])
    longer = bench.finished(text(2, 100))
    assert bench.slots.take([*text(2, 100 - SPARED_ROWS - 1), 4, 4]) != longer


def test_the_least_recently_used_makes_room() -> None:
    """Empty slots go first; then the text that was neither left nor copied for the longest time."""
    bench = Bench()
    texts = [text(seed, 40) for seed in range(3)]
    slots = [bench.finished(each) for each in texts]
    assert sorted(slots) == [0, 1, 2]
    taken = bench.slots.take([*texts[0][:30], *text(4, 30)])
    # Copied from the first, which is the oldest: it is cut rather than the second thrown away.
    assert (taken, bench.engine.cached(taken)) == (slots[0], 30)
    bench.slots.release(taken, texts[0][:30])
    copied = bench.slots.take([*texts[2][:20], *text(4, 30)])
    assert (copied, bench.engine.cached(copied)) == (slots[1], 20)
    assert bench.slots.take(text(4, 50)) == slots[0]
    assert bench.slots.take([*texts[2], 1]) == slots[2]
    assert bench.engine.cached(slots[2]) == 40


def test_what_another_text_contains_is_not_kept_twice() -> None:
    """Asking the same again and again fills one slot, not all."""
    bench = Bench()
    for length in (30, 60, 45, 60):
        busy = bench.live(text(2, 20))
        bench.finished(text(1, length))
        bench.slots.release(busy)
    assert bench.slots.num_kept == 1
    slot = bench.slots.take([*text(1, 60), 2])
    assert bench.engine.cached(slot) == 60


def test_short_beginnings_and_failed_sessions_leave_nothing() -> None:
    """Below the threshold nothing is kept or copied, nor is a text that the caller does not vouch for."""
    bench = Bench()
    bench.finished(text(1, SMALLEST_PREFIX - 1))
    slot = bench.live(text(1, 50))
    bench.slots.release(slot)
    assert bench.slots.num_kept == 0
    bench.finished(text(1, 50))
    other = bench.slots.take([*text(1, SMALLEST_PREFIX - 1), *text(3, 30)])
    assert bench.engine.cached(other) == 0


def test_sessions_wait_for_what_another_computes() -> None:
    """Those of one request for a short beginning, others for a long one; and only until it is there."""
    bench = Bench(num_slots=4)
    whole = text(1, 120)
    first = bench.slots.take(whole, group=7)
    sibling = bench.slots.take(whole, group=7)
    stranger = bench.slots.take([*whole[:100], *text(3, 9)])
    near = bench.slots.take([*whole[:40], *text(3, 9)])
    assert bench.slots.start(first)
    assert not bench.slots.start(sibling)
    assert not bench.slots.start(stranger)
    assert bench.slots.start(near)
    bench.run(first, whole[:90])
    assert not bench.slots.start(sibling)
    assert not bench.slots.start(stranger)
    bench.run(first, whole[90:110])
    assert not bench.slots.start(sibling)
    assert bench.slots.start(stranger)
    bench.run(first, whole[110:])
    assert bench.slots.start(sibling)
    cached = [bench.engine.cached(slot) for slot in (first, sibling, stranger, near)]
    assert cached == [120, 119, 100, 0]


def test_nobody_waits_for_a_session_that_is_gone() -> None:
    """What it had computed is used, the rest computed by the next in line."""
    bench = Bench()
    whole = text(1, 120)
    first, second, third = (bench.slots.take(whole) for _ in range(3))
    assert bench.slots.start(first)
    assert not bench.slots.start(second)
    bench.run(first, whole[:50])
    bench.slots.release(first, whole)
    assert bench.slots.start(second)
    assert not bench.slots.start(third)
    assert bench.engine.cached(second) == 50


def test_without_sharing_only_sequences_of_one_request_share() -> None:
    """Nothing is kept, and other requests' rows are not seen."""
    bench = Bench(is_shared=False)
    whole = text(1, 120)
    bench.finished(whole)
    assert bench.slots.num_kept == 0
    first = bench.live(whole, group=3)
    stranger, sibling = bench.slots.take(whole, group=4), bench.slots.take(whole, group=3)
    assert bench.slots.start(stranger)
    assert bench.slots.start(sibling)
    assert [bench.engine.cached(slot) for slot in (first, stranger, sibling)] == [120, 0, 119]


def test_a_rewritten_text_is_not_shared_beyond_the_change() -> None:
    """A drafter that had the wrong text does not pass it on."""
    bench = Bench()
    slot = bench.live(text(1, 80))
    bench.engine.truncate(slot, 30)
    bench.slots.rewrite(slot, 30)
    bench.run(slot, text(3, 50))
    other = bench.slots.take(text(1, 80))
    assert bench.engine.cached(other) == 30


def test_no_slot_is_an_error_and_changes_nothing() -> None:
    """The engine's own."""
    bench = Bench(num_slots=1)
    bench.slots.take(text(1, 3))
    with pytest.raises(NoFreeSlot, match="all 1 slots"):
        bench.slots.take(text(1, 3))
    assert bench.slots.num_free == 0


@dataclass(eq=False)
class Run:
    """A live session: its slot and what it says."""

    slot: int
    tokens: list[int]
    is_started: bool = False


class Company(RuleBasedStateMachine):
    """Sessions come, wait, run, fail, end: in whatever slot, their rows are those of their own text."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(num_slots=4)
        self.runs: list[Run] = []
        self.said: list[list[int]] = [[]]

    @rule(data=st.data())
    def come(self, data: st.DataObject) -> None:
        """A session, often with the beginning of an earlier text."""
        earlier = data.draw(st.sampled_from(self.said))
        # Counted from the end: beginnings long enough to be shared must be common.
        kept = len(earlier) - data.draw(st.integers(0, len(earlier)))
        fresh = text(data.draw(st.integers(0, VOCAB - 1)), data.draw(st.integers(1, 60)))
        tokens, group = [*earlier[:kept], *fresh], data.draw(st.integers(0, 2))
        if len(self.runs) == 4:
            with pytest.raises(NoFreeSlot):
                self.bench.slots.take(tokens, group=group)
            return
        slot = self.bench.slots.take(tokens, group=group)
        assert slot not in [run.slot for run in self.runs]
        assert self.bench.engine.cached(slot) < len(tokens)
        self.runs.append(Run(slot=slot, tokens=tokens))
        self.said = [*self.said[-20:], tokens]

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), count=st.sampled_from([3, 20, 90]))
    def go_on(self, data: st.DataObject, count: int) -> None:
        """Computes part of the text, or says something new."""
        run = data.draw(st.sampled_from(self.runs))
        run.is_started = run.is_started or self.bench.slots.start(run.slot)
        if not run.is_started:
            return
        done = self.bench.engine.cached(run.slot)
        if done == len(run.tokens):
            run.tokens.extend(data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1)))
        self.bench.run(run.slot, run.tokens[done : done + count])

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), keeps=st.booleans())
    def end(self, data: st.DataObject, keeps: bool) -> None:
        """Ends well, or not."""
        run = data.draw(st.sampled_from(self.runs))
        self.runs.remove(run)
        self.bench.slots.release(run.slot, run.tokens if keeps else ())

    @precondition(lambda self: self.runs)
    @rule()
    def all_get_on(self) -> None:
        """Whoever waits gets its turn once those before it have run."""
        for _ in range(len(self.runs) + 1):
            for run in self.runs:
                run.is_started = run.is_started or self.bench.slots.start(run.slot)
                done = self.bench.engine.cached(run.slot)
                if run.is_started and done < len(run.tokens):
                    self.bench.run(run.slot, run.tokens[done:])
        assert all(run.is_started for run in self.runs)

    @invariant()
    def rows_are_of_the_text(self) -> None:
        """A table knows which tokens its rows stand for."""
        engine = self.bench.engine
        assert self.bench.slots.num_free == 4 - len(self.runs)
        for run in self.runs:
            rows = engine.cached_tokens(run.slot)
            assert run.tokens[: len(rows)] == rows


Company.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_rows_are_always_of_the_sessions_own_text = Company.TestCase
