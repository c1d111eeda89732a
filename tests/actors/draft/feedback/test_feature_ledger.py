"""The books of features: whatever order they come in, each position is handed on once, when its text is there."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.draft.feedback.feature_ledger import (
    FeatureLedger,
    PositionRuns,
    Run,
    StateRun,
    TopRun,
)

SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda span: (span[0], sum(span))),
    max_size=8,
)


def run_of(start: int, end: int) -> StateRun:
    """States that say their positions."""
    states = np.arange(start, end, dtype=np.float32)[:, None, None]
    return StateRun(start, (states,))


def positions_of(runs: list[Run]) -> list[int]:
    """The positions that were handed on, as their numbers say."""
    found = []
    for run in runs:
        assert isinstance(run, StateRun)
        (states_TLD,) = run.arrays
        numbers = states_TLD[:, 0, 0].astype(int).tolist()
        assert numbers == list(range(run.start, run.start + len(numbers)))
        found += numbers
    return found


@given(SPANS, st.integers(0, 25))
def test_runs_are_the_set_of_positions(spans: list[tuple[int, int]], cut: int) -> None:
    """What is new, where the first gap is, and what is missing, are those of plain sets."""
    runs, known = PositionRuns(), set[int]()
    for start, end in spans:
        fresh = [p for part in runs.add(start, end) for p in range(*part)]
        assert fresh == sorted(set(range(start, end)) - known)
        known |= set(range(start, end))
    runs.cut(cut)
    known = {p for p in known if p < cut}
    first_gap = next(p for p in itertools.count() if p not in known)
    assert runs.end == first_gap
    assert runs.last == max(known, default=-1) + 1
    missing = [p for part in runs.add(0, 100) for p in range(*part)]
    assert missing == sorted(set(range(100)) - known)


@given(
    st.permutations([(0, 3), (3, 4), (6, 9), (2, 7), (3, 4)]),
    st.lists(st.integers(0, 12), min_size=5, max_size=5),
)
def test_order_does_not_matter(order: list[tuple[int, int]], lengths: list[int]) -> None:
    """Of features, and of them and the verdicts: in the end every position was handed on once, none before its text."""
    ledger, found = FeatureLedger(), list[int]()
    length = 0
    for (start, end), more in zip(order, lengths, strict=True):
        ledger.take(run_of(start, end))
        length = max(length, more)
        ready = positions_of(ledger.release(length))
        # The text's last token has been run by nobody.
        assert all(position <= length - 2 for position in ready)
        found += ready
    found += positions_of(ledger.release(100))
    assert sorted(found) == list(range(9))
    assert ledger.doubled == 4
    assert ledger.states.end == 9


def test_kinds_have_books_of_their_own() -> None:
    """A position's likeliest tokens are not doubled by its states."""
    ledger = FeatureLedger()
    ledger.take(run_of(0, 2))
    tops = np.zeros((2, 1), np.int64), np.zeros((2, 1), np.float32)
    ledger.take(TopRun(0, tops))
    assert ledger.doubled == 0
    assert len(ledger.release(3)) == 2


def test_a_replaced_text_is_told_anew() -> None:
    """What was known of later positions is forgotten."""
    ledger = FeatureLedger()
    ledger.take(run_of(0, 6))
    assert positions_of(ledger.release(5)) == [0, 1, 2, 3]
    ledger.cut(2)
    assert ledger.release(100) == []
    ledger.take(run_of(0, 4))
    assert positions_of(ledger.release(100)) == [2, 3]


def test_what_waits_is_bounded() -> None:
    """The oldest goes first."""
    ledger = FeatureLedger()
    for start in range(3):
        ledger.take(run_of(start, start + 1))
    assert ledger.held_bytes == 12
    assert ledger.drop_oldest() == 1
    assert positions_of(ledger.release(100)) == [1, 2]
