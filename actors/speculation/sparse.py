"""Sparse draft probabilities that drafter and target agree on to the last bit.

The law is settled *before* anything is drawn: leave out a row's improbable tokens, round the others to the wire's levels,
and take those numbers, divided by their sum, as the law that is sampled from and verified against. What leaving out and
rounding cost is then a little acceptance, never exactness. (Rounding or truncating afterwards changes the output.)

A level is a quarter of an octave below the row's greatest probability: one byte. Coarse, and still free: a probability
that is too high here is too low there, and what survives is the overlap with the target, which the errors leave as it
was (docs/verifiers.md has the measurement). Weights of levels are whole numbers, so sums are exact in float64, in any
order: both sides compute the same probabilities whatever library adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.decisions import Decisions, Float64s
from outrider.actors.speculation.draft_tree import Replacement

Uint32s = NDArray[np.uint32]

LEVELS_AN_OCTAVE = 4
"""Two cost .1 to .3 % of acceptance and save a tenth of the bytes; eight save no acceptance that can be measured."""

_OCTAVE = (1099511627776, 924575386327, 777472127994, 653773525390)
"""2^40 times 2^(-i/4), rounded: written down, so that no library's power function has a say."""

LEVELS = np.array([_OCTAVE[level % 4] >> level // 4 for level in range(128)], dtype=np.float64)
"""Weight of each level, the greatest first; 32 octaves."""

MAX_KEPT = 2048
"""Tokens of a row, at most: sums of so many weights are exact, and nothing is gained by proposing from a flatter row."""

LEAST_PROB = 7e-5
"""Tokens that are less probable are left out of the row below the text. A smaller number costs bytes, a greater one
acceptance; that all rows share a threshold, not a count or a mass, is what keeps most acceptance for the bytes: a peaked
row takes a dozen tokens, a flat one hundreds. At 7e-5 the shipped pair loses less than 1 % of acceptance at temperature
0.8, about 1 % at 1."""

ALWAYS_KEPT = 16.0
"""Tokens that are at most so many times less probable than the greatest stay: else nothing would be left of a flat row."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseRow:
    """One frozen law."""

    ids_K: Uint32s
    """Token ids, ascending."""

    weights_K: Float64s
    """Positive, of `LEVELS`; probability is the weight divided by the sum of all."""

    @property
    def probs_K(self) -> Float64s:
        """The probabilities."""
        probs_K: Float64s = self.weights_K / self.weights_K.sum()
        return probs_K

    def dense(self, vocab_size: int) -> Float64s:
        """The probabilities of all tokens, float64 (V,)."""
        row_V = np.zeros(vocab_size)
        row_V[self.ids_K] = self.probs_K
        return row_V


@dataclass(frozen=True, slots=True, eq=False)
class DenseRows:
    """Sparse rows read as dense ones, each made when it is asked for; the `Rows` of a verifier."""

    rows: Sequence[SparseRow]
    """The frozen laws."""

    vocab_size: int
    """Length of a dense row."""

    def __getitem__(self, row: int, /) -> Float64s:
        """The dense row, float64 (V,)."""
        return self.rows[row].dense(self.vocab_size)


def freeze(
    draft_probs_V: Float64s | NDArray[np.float32],
    least: float = LEAST_PROB,
    keep: int = MAX_KEPT,
) -> SparseRow:
    """Settle the law that candidates are drawn from.

    Args:
        draft_probs_V: What the drafter believes; need not be normalised.
        least: Probability below which a token is left out, unless it is close to the greatest.
        keep: Number of tokens to keep at most, 1 to `MAX_KEPT`.

    Raises:
        ValueError: `keep` is out of range, or the row has no positive finite maximum.
    """
    if not 1 <= keep <= MAX_KEPT:
        raise ValueError(f"keep is {keep}; 1 to {MAX_KEPT} tokens can stay")
    greatest = float(draft_probs_V.max())
    if not 0.0 < greatest < np.inf:
        raise ValueError(
            f"the greatest draft probability is {greatest}; it must be positive and finite"
        )
    floor = min(least * float(draft_probs_V.sum()), greatest / ALWAYS_KEPT)
    # What is less than the last level would round up to it.
    kept = np.flatnonzero(draft_probs_V >= max(floor, greatest * float(LEVELS[-1] / LEVELS[0])))
    if len(kept) > keep:
        kept = kept[np.sort(np.argpartition(draft_probs_V[kept], -keep)[-keep:])]
    probs_K = draft_probs_V[kept].astype(np.float64)
    return SparseRow(ids_K=kept.astype(np.uint32), weights_K=_rounded(probs_K, greatest))


def of_tokens(draft_probs_V: Float64s | NDArray[np.float32], tokens: Sequence[int]) -> SparseRow:
    """The law of a row that may hold these tokens only: all that is needed at temperature 0, where any law is exact."""
    ids_K = np.unique(np.asarray(tokens, dtype=np.uint32))
    probs_K = draft_probs_V[ids_K].astype(np.float64)
    return SparseRow(ids_K=ids_K, weights_K=_rounded(probs_K, float(probs_K.max())))


def _rounded(probs_K: Float64s, greatest: float) -> Float64s:
    with np.errstate(divide="ignore"):
        octaves_K = np.log2(greatest / probs_K)
    places_K = np.minimum(np.rint(octaves_K * LEVELS_AN_OCTAVE), len(LEVELS) - 1)
    weights_K: Float64s = LEVELS[places_K.astype(np.int64)]
    return weights_K


def least_prob(level_size: int, depth: int) -> float:
    """Probability below which tokens are left out of a row, by where in the tree its node is.

    The more nodes a level has, and the deeper it is, the less often each is reached, and the less its rare tokens are
    worth. Depends on the shape alone: rows must not depend on tokens beside their own path.

    Args:
        level_size: Nodes of the row's own level; 1 for the root.
        depth: Of the row's node; 0 for the root.
    """
    return LEAST_PROB * sqrt(level_size) * (depth + 1)


def draw_sibling(
    row: SparseRow, taken: Sequence[int], replacement: Replacement, decisions: Decisions
) -> int | None:
    """Draw the next child of a node.

    Args:
        row: The frozen law at the node.
        taken: Tokens of the children drawn so far.
        replacement: Without: they are not drawn again.
        decisions: The drafter's own, independent of those that will verify.

    Returns:
        The token id; None if no other token is possible. Drawing must then stop.
    """
    weights_K = row.weights_K
    if replacement is Replacement.WITHOUT and taken:
        weights_K = np.where(np.isin(row.ids_K, np.asarray(taken)), 0.0, weights_K)
        if not weights_K.any():
            return None
    return int(row.ids_K[decisions.draw(weights_K)])


def draw_siblings(
    row: SparseRow, count: int, replacement: Replacement, decisions: Decisions
) -> tuple[int, ...]:
    """Draw the children of a node, in order; fewer than `count` if the row has not that many tokens."""
    tokens: list[int] = []
    for _ in range(count):
        token = draw_sibling(row, tokens, replacement, decisions)
        if token is None:
            break
        tokens.append(token)
    return tuple(tokens)
