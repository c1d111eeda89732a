"""Candidates of one node against each other: the winner of the first two meets the third, and so on, its law known throughout.

A step chooses between two candidates by a rule over tokens (`pair_selection.py`). At a real vocabulary tokens whose ratio
target / draft agrees in its first digits are one class: the law of the winner is then the drafts' rows times a number for each
class, so a node costs a few passes over the vocabulary, a step one, and no sort sees more than the classes.

A class hides how its tokens differ, by a thirty-second of an octave. So the overlap with the target is also computed token by
token, and where it would fall the first candidate wins: more candidates are never accepted less often than fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import cast

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.sampling.random_acts import Float64s
from outrider.actors.speculation.verify.pair_selection import (
    DEFAULT_BLOCK,
    PairSelection,
    select_pair,
)

MAX_SINGLE = 512
"""Tokens up to which each is a class of its own."""

_LIKELY = 1.0 / 64.0
"""Tokens of at least this probability in the target are classes of their own: at most 64. The program chooses among these."""

_DIGITS = 5
"""Digits of the ratio, below its power of two, that tell classes apart."""

_MANTISSA_BITS = 23
_RANGE = np.float32(2.0**16)
"""Ratios beyond this, up or down, count as equal to it."""


class Tournament:
    """The candidates of one node, entered one after the other."""

    def __init__(
        self, target_V: Float64s, rows: Mapping[int, Float64s], block: int = DEFAULT_BLOCK
    ) -> None:
        """Take the rows.

        Args:
            target_V: The target's row.
            rows: By source, the row that candidates are drawn from, float64 (V,); the first candidate's first.
            block: Greatest number of tokens in a step's program, at least 1.
        """
        self._target_V = target_V
        self._rows = dict(rows)
        self._block = block
        proposed_V = reduce(np.add, self._rows.values())
        self._classes_V, self._singles = _classes(target_V, proposed_V)
        self._target_G = _sums(self._classes_V, target_V)
        self._rows_G = {
            source: _sums(self._classes_V, row_V) for source, row_V in self._rows.items()
        }
        first = next(iter(self._rows))
        # law of a token = sum over rows of the row times a number for its class.
        self._factors_G = {source: np.zeros(len(self._target_G)) for source in self._rows}
        self._factors_G[first][:] = 1.0
        self._law_G = self._rows_G[first]
        self.law_V = self._rows[first]
        """Law of the winner so far."""
        # Written to again and again: fresh memory costs more than what is computed in it.
        self._spares = [np.empty_like(target_V), np.empty_like(target_V)]
        self._part_V = np.empty(len(target_V))
        self.overlap = self._overlap(self.law_V)
        """Sum of min(target, law): the probability that the winner is accepted."""
        self._settled: set[int] = set()
        """Sources whose candidates always lose against the winner as it is."""

    def enter(self, source: int) -> PairSelection:
        """Let a candidate drawn from a source's row meet the winner so far.

        Returns:
            How to choose; classes instead of tokens, see `first_wins`.
        """
        second_G = self._rows_G[source]
        if source in self._settled:
            return self._first_wins()
        found = select_pair(
            self._target_G,
            self._law_G,
            second_G,
            self._block,
            self._classes_V[self._singles],
        )
        factors_G = {other: found.kept_G * f_G for other, f_G in self._factors_G.items()}
        factors_G[source] = factors_G[source] + found.gained_G
        law_V = self._dense(factors_G, found.law_G)
        overlap = self._overlap(law_V)
        if not found.rules or overlap <= self.overlap:
            self._settled.add(source)
            return self._first_wins()
        self._settled.clear()
        self._factors_G, self._law_G = factors_G, found.law_G
        self._spares.reverse()
        self.law_V, self.overlap = law_V, overlap
        return found

    def first_wins(self, selection: PairSelection, first: int, second: int) -> float:
        """Probability that token `first` wins against another token `second`."""
        return selection.first_wins(int(self._classes_V[first]), int(self._classes_V[second]))

    def _first_wins(self) -> PairSelection:
        size = len(self._law_G)
        return PairSelection(
            law_G=self._law_G, kept_G=np.ones(size), gained_G=np.zeros(size), rules=()
        )

    def _overlap(self, law_V: Float64s) -> float:
        return float(np.minimum(self._target_V, law_V, out=self._part_V).sum())

    def _dense(self, factors_G: Mapping[int, Float64s], law_G: Float64s) -> Float64s:
        """The law token by token, in the spare memory that does not hold the law so far."""
        law_V = self._spares[0]
        for number, (source, row_V) in enumerate(self._rows.items()):
            part_V = self._part_V if number else law_V
            # Clipped, for numpy writes to `out` without a copy then only; all classes are in range.
            factors_G[source].take(self._classes_V, out=part_V, mode="clip")
            part_V *= row_V
            if number:
                law_V += part_V
        # What the program gave to single tokens is no multiple of their rows.
        law_V[self._singles] = law_G[self._classes_V[self._singles]]
        return law_V


def _sums(classes_V: NDArray[np.intp], row_V: Float64s) -> Float64s:
    """The mass of each class."""
    return cast(Float64s, np.bincount(classes_V, row_V))


def _classes(target_V: Float64s, proposed_V: Float64s) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The class of each token, and the tokens that are classes of their own. Tokens that are not proposed are class 0."""
    is_proposed_V = proposed_V > 0.0
    count = int(np.count_nonzero(is_proposed_V))
    if count <= MAX_SINGLE:
        support = np.flatnonzero(is_proposed_V)
        classes_V = np.zeros(len(target_V), dtype=np.intp)
        classes_V[support] = np.arange(1, count + 1)
        return classes_V, support
    ratios_V = np.zeros(len(target_V), dtype=np.float32)
    # Without a mask numpy divides several times as fast.
    where: NDArray[np.bool_] | bool = True if count == len(target_V) else is_proposed_V
    with np.errstate(over="ignore"):
        np.divide(target_V, proposed_V, out=ratios_V, where=where)
    np.clip(ratios_V, 1.0 / _RANGE, _RANGE, out=ratios_V)
    digits_V = ratios_V.view(np.int32)
    digits_V >>= _MANTISSA_BITS - _DIGITS
    digits_V -= digits_V.min() - 1
    classes_V = digits_V.astype(np.intp)
    if count < len(target_V):
        classes_V[~is_proposed_V] = 0
    singles = np.flatnonzero(target_V >= _LIKELY)
    singles = singles[is_proposed_V[singles]]
    classes_V[singles] = int(classes_V.max()) + 1 + np.arange(len(singles))
    return classes_V, singles
