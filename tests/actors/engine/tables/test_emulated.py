"""Tables whose passes take what a profile says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.actors.engine.script import CONTEXT, VOCAB_SIZE, Script

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.profiles import Linear, find_profile
from outrider.actors.engine.protocol import Batch, Moves, NoFreeSlot, Rows, SlotOverflow
from outrider.actors.engine.tables.emulated_engine import EmulatedEngine
from outrider.actors.engine.tables.token_table import random_table

SETTINGS = EngineSettings(model="table", num_slots=3, max_context=CONTEXT, max_scratch=40)
PROFILE = Linear(name="p", origin="", pass_s=1.0, row_s=0.25, session_s=0.5, context_s=0.125)


class Clock:
    """A clock that nobody waits for; each look at it takes `step` seconds."""

    def __init__(self, step: float = 0.0) -> None:
        self.time = 100.0
        self.step = step
        self.sleeps: list[float] = []
        self.late = 0.0
        """By how much each sleep is longer than asked for."""

    def now(self) -> float:
        """The time, and then `step` later."""
        self.time += self.step
        return self.time - self.step

    def sleep(self, seconds: float) -> None:
        """Lets the time pass."""
        self.sleeps.append(seconds)
        self.time += seconds + self.late


def engine(order: int = 2, clock: Clock | None = None) -> EmulatedEngine:
    """A table behind a clock of its own."""
    table = random_table(VOCAB_SIZE, order, seed=1)
    return EmulatedEngine(table, PROFILE, SETTINGS, clock=clock or Clock())


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_trees_give_the_tables_logits(order: int, seed: int) -> None:
    """Whatever was grown, rebased, copied, truncated and freed before, a row's logits are those after its own text."""
    tables = engine(order)
    script = Script(tables, seed)
    num_rows = 0
    for _ in range(60):
        logits, texts = script.grow()
        num_rows += len(texts)
        for row, text in zip(logits, texts, strict=True):
            np.testing.assert_array_equal(
                row.numpy(), tables.table.log_probs_after(text).astype(np.float32)
            )
        script.rearrange()
        script.check_counts()
    assert num_rows > 100


def test_arrays_and_entries_are_the_same_pass() -> None:
    """A batch of arrays gives what its entries give one by one."""
    entries = [
        Rows(slot=0, tokens=[1, 2, 3], parents=[-1, 0, 0], logits="last"),
        Rows(slot=1, tokens=[4], parents=[-1], logits="none"),
        Rows(slot=2, tokens=[5, 6], parents=[-1, -1]),
    ]
    one, other = engine(), engine()
    for each in (one, other):
        assert [each.acquire() for _ in range(3)] == [0, 1, 2]
    by_entries, by_arrays = one.forward(entries), other.forward(Batch.of(entries))
    assert by_entries.offsets == by_arrays.offsets == (0, 1, 1, 3)
    assert torch.equal(by_entries.values_RV, by_arrays.values_RV)


def test_a_pass_takes_what_the_profile_says() -> None:
    """By rows, sessions and cached rows; and asking for it neither runs nor waits."""
    clock = Clock()
    tables = engine(clock=clock)
    a, b = tables.acquire(), tables.acquire()
    first = [Rows(slot=a, tokens=[1, 2, 3, 4], parents=[-1, 0, 1, 2])]
    assert tables.seconds_of(first) == 1.0 + 4 * 0.25 + 0.5
    assert (tables.scratch(a), clock.sleeps) == (0, [])
    tables.forward(first).wait()
    tables.rebase(Moves.one(a, [0, 1, 2, 3]))
    second = [Rows(slot=a, tokens=[5], parents=[-1]), Rows(slot=b, tokens=[5], parents=[-1])]
    tables.forward(second).wait()
    assert clock.sleeps == [2.5, 1.0 + 2 * 0.25 + 2 * 0.5 + 4 * 0.125]


def test_a_pass_runs_beside_the_host() -> None:
    """What the host does before it waits is part of the pass; the next one begins when it is over, waited for or not."""
    clock = Clock()
    tables = engine(clock=clock)
    tables.acquire()
    rows = [Rows(slot=0, tokens=[1], parents=[-1])]
    logits = tables.forward(rows)
    assert clock.sleeps == []
    clock.time += 0.75
    logits.wait()
    logits.wait()
    assert clock.sleeps == [1.75 - 0.75]
    tables.forward(rows)
    tables.forward(rows).wait()
    assert clock.sleeps == [1.0, 1.75, 1.75]


def test_the_time_of_computing_is_part_of_the_pass() -> None:
    """The pass ends when it should, however long the tokens took; and at once if that was longer."""
    rows = [Rows(slot=0, tokens=[1], parents=[-1])]
    slow = Clock(step=0.5)
    tables = engine(clock=slow)
    tables.acquire()
    tables.forward(rows).wait()
    # It began at 100 and a half passed before the sleep was reckoned; the other half is that look itself.
    assert slow.sleeps == [1.75 - 0.5]
    slower = Clock(step=9.0)
    tables = engine(clock=slower)
    tables.acquire()
    tables.forward(rows).wait()
    assert slower.sleeps == []


def test_passes_are_not_longer_for_late_awakenings() -> None:
    """What a machine adds to every sleep is learned and taken off; a single long one changes next to nothing."""
    late_s = 0.00015
    clock = Clock()
    tables = engine(clock=clock)
    tables.acquire()
    rows = [Rows(slot=0, tokens=[1], parents=[-1])]
    took = []
    for number in range(80):
        clock.late = 1.0 if number == 70 else late_s
        began = clock.time
        tables.forward(rows).wait()
        took.append(clock.time - began)
        tables.truncate(0, 0)
    assert took[0] == pytest.approx(1.75 + late_s)
    assert took[40:70] == pytest.approx([1.75] * 30, abs=2e-5)
    assert took[71:] == pytest.approx([1.75] * 9, abs=2e-5)


def test_without_waiting() -> None:
    """`compute` is the same pass at once."""
    clock = Clock()
    tables = engine(clock=clock)
    tables.acquire()
    logits = tables.compute([Rows(slot=0, tokens=[1, 2], parents=[-1, 0])])
    assert (logits.offsets, tables.scratch(0), clock.sleeps) == ((0, 2), 2, [])


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([], ValueError, "batch is empty"),
        ([Rows(slot=0, tokens=[], parents=[])], ValueError, "0 tokens with 0 parents"),
        ([Rows(slot=0, tokens=[1, 2], parents=[-1])], ValueError, "2 tokens with 1 parents"),
        ([Rows(slot=0, tokens=[VOCAB_SIZE], parents=[-1])], ValueError, "outside the vocabulary"),
        ([Rows(slot=0, tokens=[-1], parents=[-1])], ValueError, "token id -1"),
        ([Rows(slot=0, tokens=[1, 1], parents=[-1, 1])], ValueError, "row 1 has parent 1"),
        ([Rows(slot=0, tokens=[1], parents=[-2])], ValueError, "parent -2"),
        ([Rows(slot=1, tokens=[1], parents=[-1])], ValueError, "slot 1 is not taken"),
        ([Rows(slot=9, tokens=[1], parents=[-1])], ValueError, "slot 9 is not taken"),
        ([Rows(slot=0, tokens=[1], parents=[-1])] * 2, ValueError, "occurs twice"),
        ([Rows(slot=0, tokens=[1] * 41, parents=[-1] * 41)], SlotOverflow, "max_scratch is 40"),
    ],
)
def test_refused_passes_change_nothing(
    rows: list[Rows], error: type[Exception], message: str
) -> None:
    """What a real engine refuses is refused, without a sleep."""
    clock = Clock()
    tables = engine(clock=clock)
    tables.acquire()
    with pytest.raises(error, match=message):
        tables.forward(rows)
    assert (tables.cached(0), tables.scratch(0), clock.sleeps) == (0, 0, [])


def test_the_end_of_the_context() -> None:
    """Wide trees fit where deep ones do not, as their positions are what counts."""
    tables = engine()
    tables.acquire()
    for _ in range(2):
        tables.compute([Rows(slot=0, tokens=[1] * 40, parents=range(-1, 39))])
        tables.rebase(Moves.one(0, range(40)))
    tables.compute([Rows(slot=0, tokens=[2] * 14, parents=range(-1, 13))])
    tables.rebase(Moves.one(0, range(14)))
    left = CONTEXT - 94
    tables.compute([Rows(slot=0, tokens=[1] * 9, parents=[-1] * 9)])
    with pytest.raises(SlotOverflow, match="max_context is 96"):
        tables.compute([Rows(slot=0, tokens=[1] * left, parents=[8, 9])])
    assert tables.scratch(0) == 9


@pytest.mark.parametrize(
    ("path", "keep", "message"),
    [
        ([1], [], "breaks at row 1"),
        ([5], [], "breaks at row 5"),
        ([0], [2, 1], "row 1 cannot be kept"),
        ([0], [3], "row 3 cannot be kept"),
    ],
)
def test_refused_rebases_change_nothing(path: list[int], keep: list[int], message: str) -> None:
    """Paths that are none, and kept rows that are not below them."""
    tables = engine()
    tables.acquire()
    # 0 has the children 1 and 2; 3 stands beside it.
    tables.compute([Rows(slot=0, tokens=[1, 2, 3, 4], parents=[-1, 0, 0, -1])])
    with pytest.raises(ValueError, match=message):
        tables.rebase(Moves.one(0, path, keep))
    assert (tables.cached(0), tables.scratch(0)) == (0, 4)


def test_slots_run_out() -> None:
    """As on a real engine."""
    tables = engine()
    for _ in range(3):
        tables.acquire()
    with pytest.raises(NoFreeSlot, match="all 3 slots are taken"):
        tables.acquire()
    with pytest.raises(ValueError, match="cannot keep 1 rows"):
        tables.release(0, keep=1)
    assert tables.num_free == 0


def test_loaded_by_name() -> None:
    """A law on an emulated device is known as emulated; on the processor it is not."""
    there = load_engine(EngineSettings(model="law:agree70", device="emulated:h100-8b"))
    here = load_engine(EngineSettings(model="law:agree70"))
    assert (there.spec.emulated, here.spec.emulated) == ("h100-8b", "")
    assert there.spec.fingerprint == here.spec.fingerprint
    assert isinstance(there, EmulatedEngine)
    assert there.profile.seconds(rows=1, sessions=1, context=0) == find_profile("h100-8b").seconds(
        rows=1, sessions=1, context=0
    )


@pytest.mark.parametrize(
    ("model", "device", "message"),
    [
        ("demo:target", "emulated:h100-8b", "does no arithmetic"),
        ("law:agree70", "emulated:h100-9b", "there is no profile 'h100-9b'"),
        ("law:agree70", "tpu", "cpu, cuda, cuda:N or emulated:PROFILE"),
        ("law:agree99", "cpu", "there is no law 'agree99'"),
    ],
)
def test_refused_settings(model: str, device: str, message: str) -> None:
    """What cannot run is told before anything is loaded."""
    with pytest.raises(ValueError, match=message):
        load_engine(EngineSettings(model=model, device=device))
