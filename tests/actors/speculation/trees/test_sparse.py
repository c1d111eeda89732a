"""Frozen rows are settled before drawing, and draws have exactly their law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.actors.speculation.trees.branches import every_outcome

from outrider.actors.frozen.sparse_rows import (
    LEAST_PROB,
    LEVELS,
    MAX_KEPT,
    DenseRows,
    SparseRow,
    draw_siblings,
    freeze,
    least_prob,
    of_tokens,
)
from outrider.actors.speculation.trees.draft_tree import Replacement

WITH, WITHOUT = Replacement.WITH, Replacement.WITHOUT


def test_freeze_keeps_the_most_probable() -> None:
    """Ascending ids, the greatest weight 1, the rest in proportion, to a quarter of an octave."""
    row = freeze(np.array([0.05, 0.4, 0.1, 0.2, 0.25]), keep=3)
    assert row.ids_K.tolist() == [1, 3, 4]
    shares = (row.weights_K / row.weights_K.max()).tolist()
    assert shares == pytest.approx([1.0, 0.5, 2**-0.75], rel=1e-9)
    assert row.dense(5).sum() == pytest.approx(1.0, abs=1e-15)


@given(st.integers(0, 10_000), st.integers(1, 80), st.sampled_from([0.0, 1e-3, 0.01]))
def test_freeze_is_within_a_rounding_of_the_row(seed: int, keep: int, least: float) -> None:
    """Each kept probability is off by at most half a level, relatively to the greatest; float32 rows do as well."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(60, 0.5)).astype(np.float32)
    row = freeze(probs, least, keep)
    kept = probs[row.ids_K].astype(np.float64)
    assert 1 <= len(kept) <= keep
    octaves = np.log2(kept / kept.max()) - np.log2(row.weights_K / row.weights_K.max())
    assert np.abs(octaves).max() <= 1 / 8 + 1e-6
    left_out = np.delete(probs, row.ids_K)
    assert left_out.max(initial=0.0) <= max(kept.min(), least, probs.max() * 2.0**-31)
    assert kept.min() >= min(least, probs.max() / 16) * (1 - 1e-6)


def test_peaked_rows_are_short_and_flat_ones_long() -> None:
    """A threshold on the probability, not a count; of a row without a peak the most probable stay."""
    peaked, flat = np.full(4000, 1e-6), np.full(4000, 1 / 4000)
    peaked[7] = 1.0
    assert freeze(peaked).ids_K.tolist() == [7]
    assert len(freeze(flat).ids_K) == MAX_KEPT
    assert len(freeze(flat, 0.01).ids_K) == MAX_KEPT
    assert freeze(flat, keep=5, rest_share=0.0).probs_K.tolist() == [0.2] * 5


def test_the_floor_rises_with_the_place_in_the_tree() -> None:
    """Rows of nodes that are reached less often may be shorter."""
    assert least_prob(0) == LEAST_PROB
    assert least_prob(3) == 2 * LEAST_PROB


def test_rows_of_given_tokens() -> None:
    """What greedy trees carry: their own tokens, however improbable."""
    row = of_tokens(np.array([0.5, 0.25, 0.0, 0.25]), (3, 2, 0))
    assert row.ids_K.tolist() == [0, 2, 3]
    assert row.weights_K.tolist() == [LEVELS[0], LEVELS[-1], LEVELS[4]]


def test_levels_are_a_quarter_of_an_octave_apart() -> None:
    """Whole numbers, so that nothing depends on a library's power function."""
    assert LEVELS.tolist() == [float(int(level)) for level in LEVELS]
    assert np.log2(LEVELS[:-1] / LEVELS[1:]) == pytest.approx(0.25, abs=1e-2)
    assert LEVELS[0] * MAX_KEPT < 2.0**53


def test_sums_are_exact_in_any_order() -> None:
    """So that two libraries cannot disagree about a probability."""
    row = freeze(np.random.default_rng(1).dirichlet(np.full(5000, 0.2)), 0.0)
    weights = row.weights_K
    total = weights.sum()
    for seed in range(5):
        shuffled = np.random.default_rng(seed).permutation(weights)
        assert sum(shuffled.tolist()) == total == np.cumsum(shuffled)[-1]


def test_small_probabilities_that_round_to_nothing_are_left_out() -> None:
    """A token of weight 0 could never be drawn; it is not in the row."""
    row = freeze(np.array([1.0, 1e-10, 0.5]), 0.0)
    assert row.ids_K.tolist() == [0, 2]


@pytest.mark.parametrize("probs", [[0.0, 0.0], [np.nan, 0.5], [np.inf, 0.5]])
def test_rows_without_a_law_are_refused(probs: list[float]) -> None:
    """Instead of drawing from nothing."""
    with pytest.raises(ValueError, match="must be positive and finite"):
        freeze(np.array(probs))


@pytest.mark.parametrize("keep", [0, MAX_KEPT + 1])
def test_counts_out_of_range_are_refused(keep: int) -> None:
    """At least one token stays, and no more than sums are exact for."""
    with pytest.raises(ValueError, match=f"keep is {keep}"):
        freeze(np.array([1.0]), keep=keep)


@pytest.mark.parametrize("replacement", [WITH, WITHOUT])
def test_siblings_have_their_law(replacement: Replacement) -> None:
    """Independent: products of the row; without replacement: of what is left, renormalised each time."""
    row = freeze(np.array([0.5, 0.0, 0.2, 0.3]))
    probs = row.dense(4)
    law: dict[tuple[int, ...], float] = {}
    for tokens, chance in every_outcome(lambda d: draw_siblings(row, 2, replacement, d)):
        law[tokens] = law.get(tokens, 0.0) + chance
    assert sum(law.values()) == pytest.approx(1.0)
    for (first, second), chance in law.items():
        left = 1.0 if replacement is WITH else 1.0 - probs[first]
        assert chance == pytest.approx(probs[first] * probs[second] / left)
        assert replacement is WITH or first != second


def test_siblings_end_with_the_row() -> None:
    """Three tokens, five wanted: three come; with replacement all five do."""
    row = freeze(np.array([0.5, 0.2, 0.3]))
    without = {t for t, _ in every_outcome(lambda d: draw_siblings(row, 5, WITHOUT, d))}
    assert all(sorted(tokens) == [0, 1, 2] for tokens in without)
    assert len(next(every_outcome(lambda d: draw_siblings(row, 5, WITH, d)))[0]) == 5


def test_dense_rows_hold_the_probabilities_of_the_sparse_ones() -> None:
    """To the bit, and 0 elsewhere."""
    row = freeze(np.random.default_rng(4).dirichlet(np.ones(50)), keep=7)
    dense = DenseRows((row,), 50)[0]
    assert (dense[row.ids_K] == row.probs_K).all()
    rest = np.delete(dense, row.ids_K)
    assert len(row.ids_K) == 7
    assert rest.tolist() == [row.rest / row.total] * 43
    assert [row.prob(token) for token in range(50)] == dense.tolist()
    padded = DenseRows((row,), 60)[0]
    assert padded[:50].tolist() == dense.tolist()
    assert not padded[50:].any()
    with pytest.raises(ValueError, match="row of 50 token ids cannot be read as one of 49"):
        row.dense(49)


def test_dense_rows_are_made_once_for_siblings() -> None:
    """And again after another."""
    rows = tuple(freeze(np.random.default_rng(n).dirichlet(np.ones(50))) for n in range(3))
    dense = DenseRows(rows, 50)
    first = dense[0]
    assert dense[0] is first
    for number, row in enumerate(rows):
        assert dense[number].tolist() == row.dense(50).tolist()
    assert dense[0] is not first
    assert dense[0].tolist() == first.tolist()


def test_unlisted_tokens_share_what_they_have() -> None:
    """Or a part of it; nothing if it is too little to tell, or if a filter left out most of them."""
    probs = np.array([0.5, 0.1, 0.25, 0.15])
    assert freeze(probs, keep=2).dense(4)[[1, 3]] == pytest.approx([0.125, 0.125], rel=0.1)
    assert freeze(probs, keep=2, rest_share=0.5).rest == freeze(probs, keep=2).rest / 2
    assert freeze(probs, keep=2, rest_share=0.0).num_unlisted == 0
    assert freeze(np.array([0.6, 0.4, 1e-11, 1e-11])).rest == 0.0
    assert freeze(np.array([0.6, 0.3, 0.1, 0.0, 0.0]), keep=2).rest == 0.0


def test_sums_are_exact_however_many_tokens_are_not_listed() -> None:
    """A flat row over a large vocabulary gives the rest less than its share, rather than bits that depend on the order."""
    row = freeze(np.full(300_000, 1 / 300_000))
    assert row.num_unlisted == 300_000 - MAX_KEPT
    assert row.total == int(row.total) < 2**53
    assert 0.0 < row.rest < row.weights_K.min()


@pytest.mark.parametrize("replacement", [WITH, WITHOUT])
def test_siblings_have_the_law_of_rows_with_unlisted_tokens(replacement: Replacement) -> None:
    """Each unlisted token as often as the next, and without replacement once."""
    row = freeze(np.array([0.1, 0.5, 0.1, 0.2, 0.1]), keep=2)
    probs = row.dense(5)
    law: dict[tuple[int, ...], float] = {}
    for tokens, chance in every_outcome(lambda d: draw_siblings(row, 3, replacement, d)):
        law[tokens] = law.get(tokens, 0.0) + chance
    assert len(law) == (5**3 if replacement is WITH else 5 * 4 * 3)
    for tokens, chance in law.items():
        wanted, left = 1.0, 1.0
        for token in tokens:
            wanted *= probs[token] / left
            left -= probs[token] if replacement is WITHOUT else 0.0
        assert chance == pytest.approx(wanted)


def test_drawing_does_not_write_into_the_row() -> None:
    """The law stays what it was."""
    row = SparseRow(ids_K=np.array([1, 2], np.uint32), weights_K=np.array([1.0, 0.5]))
    row.weights_K.flags.writeable = False
    assert next(every_outcome(lambda d: draw_siblings(row, 2, WITHOUT, d)))[0] == (1, 2)
