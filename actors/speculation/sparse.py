"""Sparse draft probabilities that drafter and target agree on to the last bit.

The law is settled *before* anything is drawn: truncate a row to its most probable tokens, round to the wire's float16,
and take those numbers, divided by their sum, as the law that is sampled from and verified against. What truncation and
rounding cost is then a little acceptance, never exactness. (Rounding or truncating afterwards changes the output.)

A row's weights are float16 with the greatest scaled to 1, so each is a whole multiple of 2^-24 and sums of up to 2^29 of
them are exact in float64, in any order: both sides compute the same probabilities whatever library adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.decisions import Decisions, Float64s
from outrider.actors.speculation.draft_tree import Replacement

Uint32s = NDArray[np.uint32]
Float16s = NDArray[np.float16]

DEFAULT_KEEP = 64
"""Tokens kept of a row: 384 bytes on the wire. Fewer cost acceptance, more cost bytes; exactness is untouched. Where the
most probable token has a third of the mass, 64 of 32,000 lose some .03 to .08 of acceptance, 256 lose .01 to .03."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseRow:
    """One frozen law."""

    ids_K: Uint32s
    """Token ids, ascending."""

    weights_K: Float16s
    """Positive; probability is the weight divided by the sum of all."""

    @property
    def probs_K(self) -> Float64s:
        """The probabilities."""
        weights_K = self.weights_K.astype(np.float64)
        probs_K: Float64s = weights_K / weights_K.sum()
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


def freeze(draft_probs_V: Float64s | NDArray[np.float32], keep: int = DEFAULT_KEEP) -> SparseRow:
    """Settle the law that candidates are drawn from.

    Args:
        draft_probs_V: What the drafter believes; need not be normalised.
        keep: Number of tokens to keep, at least 1; fewer if the rest rounds to nothing.

    Raises:
        ValueError: `keep` is less than 1, or the row has no positive finite maximum.
    """
    if keep < 1:
        raise ValueError(f"keep is {keep}; at least one token must stay")
    greatest = float(draft_probs_V.max())
    if not 0.0 < greatest < np.inf:
        raise ValueError(
            f"the greatest draft probability is {greatest}; it must be positive and finite"
        )
    if keep < len(draft_probs_V):
        kept = np.argpartition(draft_probs_V, -keep)[-keep:]
        kept.sort()
    else:
        kept = np.arange(len(draft_probs_V))
    weights_K = (draft_probs_V[kept].astype(np.float64) / greatest).astype(np.float16)
    is_possible_K = weights_K > 0.0
    return SparseRow(
        ids_K=kept[is_possible_K].astype(np.uint32), weights_K=weights_K[is_possible_K]
    )


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
    weights_K = row.weights_K.astype(np.float64)
    if replacement is Replacement.WITHOUT and taken:
        weights_K[np.isin(row.ids_K, np.asarray(taken))] = 0.0
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
