"""Sparse draft probabilities that drafter and target agree on to the last bit.

The law is settled *before* anything is drawn: list a row's probable tokens, rounded to the wire's levels, let all others
share one small weight, and take those numbers, divided by their sum, as the law that is sampled from and verified
against. What that costs is then a little acceptance, never exactness. (Rounding or truncating afterwards changes the
output.)

The shared weight is one byte, and worth more than a third of the listed tokens: without it, what the target gives to rare
tokens could never be proposed, however many candidates there are.

A level is a quarter of an octave below the row's greatest probability: one byte. Coarse, and still free: a probability
that is too high here is too low there, and what survives is the overlap with the target, which the errors leave as it
was (docs/verifiers.md has the measurement). Weights of levels are whole numbers, so sums are exact in float64, in any
order: both sides compute the same probabilities whatever library adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log2, sqrt

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.sampling.random_acts import Decisions, Float64s
from outrider.actors.speculation.trees.draft_tree import Replacement

Uint32s = NDArray[np.uint32]

LEVELS_AN_OCTAVE = 4
"""Two cost .1 to .3 % of acceptance and save a tenth of the bytes; eight save no acceptance that can be measured."""

_OCTAVE = (1099511627776, 924575386327, 777472127994, 653773525390)
"""2^40 times 2^(-i/4), rounded: written down, so that no library's power function has a say."""

LEVELS = np.array([_OCTAVE[level % 4] >> level // 4 for level in range(128)], dtype=np.float64)
"""Weight of each level, the greatest first; 32 octaves."""

LEAST_LEVEL = float(LEVELS[-1] / LEVELS[0])
"""The last of them, as a part of the first."""

MAX_KEPT = 2048
"""Listed tokens of a row, at most: sums of so many weights are exact, and nothing is gained by listing a flatter row."""

MAX_REST = 2.0**52
"""Weight of all tokens that are not listed, at most: sums stay exact with them."""

LEAST_PROB = 1.2e-4
"""Tokens that are less probable are not listed in the row below the text. A smaller number costs bytes, a greater one
acceptance; that all rows share a threshold, not a count or a mass, is what keeps most acceptance for the bytes: a peaked
row takes a dozen tokens, a flat one hundreds."""

REST_OF_ONE = 0.5
"""Part of the probability of unlisted tokens that they get where one candidate is drawn. Most of them are less probable
than their mean, so a lone draw among them is lost more often than one among the listed ones. Of several candidates the
later ones make up for that, and the whole of it is best."""

ALWAYS_KEPT = 16.0
"""Tokens at most so many times less probable than the greatest are listed: else a flat row would have none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseRow:
    """One frozen law."""

    ids_K: Uint32s
    """Ids of the listed tokens, ascending."""

    weights_K: Float64s
    """Positive, of `LEVELS`; probability is the weight divided by the sum of all."""

    rest: float = 0.0
    """Weight of each token that is not listed, of `LEVELS` or 0."""

    vocab_size: int = 0
    """Number of token ids, listed or not; needed where `rest` is positive."""

    total: float = field(init=False)
    """Sum of all weights: exact."""

    def __post_init__(self) -> None:
        total = float(self.weights_K.sum()) + self.rest * self.num_unlisted
        object.__setattr__(self, "total", total)

    @property
    def num_unlisted(self) -> int:
        """Tokens that have the weight `rest`."""
        return self.vocab_size - len(self.ids_K) if self.rest else 0

    @property
    def probs_K(self) -> Float64s:
        """The probabilities of the listed tokens."""
        probs_K: Float64s = self.weights_K / self.total
        return probs_K

    def prob(self, token: int) -> float:
        """The probability of a token, listed or not."""
        place = int(self.ids_K.searchsorted(token))
        if place < len(self.ids_K) and self.ids_K[place] == token:
            return float(self.weights_K[place]) / self.total
        return self.rest / self.total if 0 <= token < self.vocab_size else 0.0

    def dense(self, vocab_size: int) -> Float64s:
        """The probabilities of all tokens, float64 (V,).

        Raises:
            ValueError: Unlisted tokens have a weight, and the row was made for more tokens.
        """
        row_V = np.zeros(vocab_size)
        if self.rest:
            if vocab_size < self.vocab_size:
                raise ValueError(
                    f"a draft row of {self.vocab_size} token ids cannot be read as one of {vocab_size}"
                )
            row_V[: self.vocab_size] = self.rest / self.total
        row_V[self.ids_K] = self.probs_K
        return row_V


@dataclass(frozen=True, slots=True, eq=False)
class DenseRows:
    """Sparse rows read as dense ones, each made when it is asked for; the `Rows` of a verifier.

    The last one is kept, because siblings ask for it again; all of them would be megabytes of fresh memory a round.
    """

    rows: Sequence[SparseRow]
    """The frozen laws."""

    vocab_size: int
    """Length of a dense row."""

    _last: dict[int, Float64s] = field(default_factory=dict, init=False, repr=False)

    def __getitem__(self, row: int, /) -> Float64s:
        """The dense row, float64 (V,)."""
        row_V = self._last.get(row)
        if row_V is None:
            self._last.clear()
            row_V = self._last[row] = self.rows[row].dense(self.vocab_size)
        return row_V


def freeze(
    draft_probs_V: Float64s | NDArray[np.float32],
    least: float = LEAST_PROB,
    keep: int = MAX_KEPT,
    *,
    rest_share: float = 1.0,
) -> SparseRow:
    """Settle the law that candidates are drawn from.

    Args:
        draft_probs_V: What the drafter believes; need not be normalised.
        least: Probability below which a token is not listed, unless it is close to the greatest.
        keep: Number of tokens to list at most, 1 to `MAX_KEPT`.
        rest_share: Part of their probability that unlisted tokens get, spread evenly; 0: they are left out.

    Raises:
        ValueError: `keep` is out of range, or the row has no positive finite maximum.
    """
    if not 1 <= keep <= MAX_KEPT:
        raise ValueError(f"keep is {keep}; 1 to {MAX_KEPT} tokens can be listed")
    greatest = float(draft_probs_V.max())
    if not 0.0 < greatest < np.inf:
        raise ValueError(
            f"the greatest draft probability is {greatest}; it must be positive and finite"
        )
    total = float(draft_probs_V.sum(dtype=np.float64))
    # What is less than the last level would round up to it.
    floor = max(min(least * total, greatest / ALWAYS_KEPT), greatest * LEAST_LEVEL)
    kept = np.flatnonzero(draft_probs_V >= floor)
    if len(kept) > keep:
        kept = kept[np.sort(np.argpartition(draft_probs_V[kept], -keep)[-keep:])]
    probs_K = draft_probs_V[kept].astype(np.float64)
    rest = 0.0
    # Where a filter has excluded most of the others, their weight would be spent on what the target excludes too.
    num_others = len(draft_probs_V) - len(kept)
    if 2 * (int(np.count_nonzero(draft_probs_V)) - len(kept)) > num_others:
        rest = _rest(rest_share * (total - float(probs_K.sum())), num_others, greatest)
    return SparseRow(
        ids_K=kept.astype(np.uint32),
        weights_K=_rounded(probs_K, greatest),
        rest=rest,
        vocab_size=len(draft_probs_V),
    )


def of_tokens(draft_probs_V: Float64s | NDArray[np.float32], tokens: Sequence[int]) -> SparseRow:
    """The law of a row that may hold these tokens only: all that is needed at temperature 0, where any law is exact."""
    ids_K = np.unique(np.asarray(tokens, dtype=np.uint32))
    probs_K = draft_probs_V[ids_K].astype(np.float64)
    return SparseRow(ids_K=ids_K, weights_K=_rounded(probs_K, float(probs_K.max())))


def rest_is_exact(rest: float, num_unlisted: int) -> bool:
    """Whether sums are exact if so many tokens have this weight."""
    return rest * num_unlisted <= MAX_REST


def _rest(mass: float, num_unlisted: int, greatest: float) -> float:
    """The weight of each unlisted token, from the probability that all of them share."""
    mean = mass / num_unlisted
    if mean < greatest * LEAST_LEVEL:
        return 0.0
    place = round(log2(greatest / mean) * LEVELS_AN_OCTAVE)
    while not rest_is_exact(float(LEVELS[place]), num_unlisted):
        place += 1
    return float(LEVELS[place])


def _rounded(probs_K: Float64s, greatest: float) -> Float64s:
    with np.errstate(divide="ignore"):
        octaves_K = np.log2(greatest / probs_K)
    places_K = np.minimum(np.rint(octaves_K * LEVELS_AN_OCTAVE), len(LEVELS) - 1)
    weights_K: Float64s = LEVELS[places_K.astype(np.int64)]
    return weights_K


def least_prob(depth: int) -> float:
    """Probability below which tokens are not listed in a row, by the depth of its node: 0 for the root.

    The deeper a node, the less often it is reached, and the less its rare tokens are worth. Depends on the shape alone:
    rows must not depend on tokens beside their own path.
    """
    return LEAST_PROB * sqrt(depth + 1)


def rest_share(count: int) -> float:
    """Part of their probability that unlisted tokens get at a node with so many children, see `REST_OF_ONE`."""
    return REST_OF_ONE if count == 1 else 1.0


class Urn:
    """The tokens of a row, to draw from; weights are whole numbers, so what is left is exact."""

    def __init__(self, row: SparseRow) -> None:
        self._row = row
        self._num_unlisted = row.num_unlisted
        self._weights = np.append(row.weights_K, row.rest * row.num_unlisted)
        """Of the listed tokens, then of all others together."""
        self._removed: list[int] = []

    def remove(self, token: int) -> None:
        """Takes a token out."""
        ids_K = self._row.ids_K
        place = int(ids_K.searchsorted(token))
        self._removed.append(token)
        if place < len(ids_K) and ids_K[place] == token:
            self._weights[place] = 0.0
        elif self._num_unlisted:
            self._num_unlisted -= 1
            self._weights[-1] = self._row.rest * self._num_unlisted

    def draw(self, decisions: Decisions) -> int | None:
        """A token that is left, by its weight; None if there is none."""
        if self._removed and not self._weights.any():
            return None
        place = decisions.draw(self._weights)
        if place < len(self._row.ids_K):
            return int(self._row.ids_K[place])
        is_left_V = np.ones(self._row.vocab_size, dtype=np.bool_)
        is_left_V[self._row.ids_K] = False
        is_left_V[self._removed] = False
        return int(np.flatnonzero(is_left_V)[decisions.draw(np.ones(self._num_unlisted))])


DRAWS_A_SIBLING = 2
"""Decisions that one sibling takes at most: the token, and which of the unlisted it is."""


def draw_siblings(
    row: SparseRow, count: int, replacement: Replacement, decisions: Decisions
) -> tuple[int, ...]:
    """Draw the children of a node, in order; fewer than `count` if the row has not that many tokens."""
    urn = Urn(row)
    tokens: list[int] = []
    while len(tokens) < count and (token := urn.draw(decisions)) is not None:
        tokens.append(token)
        if replacement is Replacement.WITHOUT:
            urn.remove(token)
    return tuple(tokens)
