"""Whether the texts of rounds follow the target's law: three chi-square tests of one run.

A round begins at a moment that depends only on the past, so what follows from there has the target's law given the text
before, whatever the round accepted: the first token, the tokens of a window as long as a round can be, and after a path
that was accepted to its leaf the bonus token. The target is a table of order two, so the law is known exactly, and it
depends on the last two tokens only.

In each context the counts are multinomial; the sum of their chi-square terms over contexts has the chi-square law with as
many degrees of freedom as there are free cells. Windows do not overlap, so no token is counted twice in one statistic.
The last rounds of a text are left out, because whether a window is complete there depends on what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2  # type: ignore[import-untyped]  # no stubs
from tests.laws.coordinator import Text

from outrider.actors.engine.tables.tabular_engine import Table

LEAST_EXPECTED = 20.0
"""Cells of a context that expect fewer counts are pooled: the tail of the chi-square law is used far out."""

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How probable counts at least as far from the law are, if it holds."""

    first: float
    """Of the first token of each round."""

    joint: float
    """Of the tokens of non-overlapping windows that begin where rounds begin."""

    bonus: float | None
    """Of the token after a path that was accepted to its leaf; None where leaves are not at a known depth."""

    num_first: int
    num_windows: int
    num_bonus: int
    """How many there were."""

    @property
    def least(self) -> float:
        """The least of the probabilities."""
        return min(self.first, self.joint, 1.0 if self.bonus is None else self.bonus)


def judge(texts: list[Text], table: Table, *, window: int, depth: int | None) -> Judgement:
    """Compare.

    Args:
        texts: What was committed.
        table: The target, of order 2.
        window: Tokens of a window.
        depth: Candidates on a path to a leaf; None where this differs.
    """
    transitions = np.exp(table.log_probs.astype(np.float64))
    transitions /= transitions.sum(-1, keepdims=True)
    first = [run for text in texts for run in _runs(text, window, 1)]
    joint = [run for text in texts for run in _windows(text, window)]
    bonus = [] if depth is None else [run for text in texts for run in _bonuses(text, depth)]
    return Judgement(
        first=p_value(first, transitions),
        joint=p_value(joint, transitions),
        bonus=p_value(bonus, transitions) if bonus else None,
        num_first=len(first),
        num_windows=len(joint),
        num_bonus=len(bonus),
    )


Run = tuple[int, ...]
"""Two tokens of context, then the tokens whose law is tested."""


def _runs(text: Text, window: int, length: int) -> Iterator[Run]:
    """What follows the beginning of each round."""
    for start in text.starts[:-window]:
        yield tuple(text.tokens[start - 2 : start + length])


def _windows(text: Text, window: int) -> Iterator[Run]:
    """The same for as many rounds as do not overlap."""
    end = 0
    for start in text.starts[:-window]:
        if start >= end:
            end = start + window
            yield tuple(text.tokens[start - 2 : end])


def _bonuses(text: Text, depth: int) -> Iterator[Run]:
    """The last token of each round that accepted a whole path, and the two before it."""
    for start, end in zip(text.starts, text.starts[1:], strict=False):
        if end - start == depth + 1:
            yield tuple(text.tokens[end - 3 : end])


def p_value(runs: list[Run], transitions_VVV: Float64s) -> float:
    """Probability of counts at least as far from the law of the table, given the contexts; 0 if the impossible happened."""
    vocab = transitions_VVV.shape[-1]
    length = len(runs[0])
    counts = np.zeros((vocab,) * length)
    np.add.at(counts, tuple(np.array(runs).T), 1.0)
    law = np.ones((vocab, vocab))
    for _ in range(length - 2):
        law = law[..., None] * transitions_VVV.reshape((1,) * (law.ndim - 2) + (vocab,) * 3)
    statistic, degrees = 0.0, 0
    for observed, probs in zip(
        counts.reshape(vocab**2, -1), law.reshape(vocab**2, -1), strict=True
    ):
        expected = probs * observed.sum()
        rare = expected < LEAST_EXPECTED
        cells = np.append(observed[~rare], observed[rare].sum())
        wanted = np.append(expected[~rare], expected[rare].sum())
        if (observed[probs == 0.0] > 0.0).any():
            return 0.0
        if wanted[-1] < LEAST_EXPECTED:
            # Too rare even together: into the least of the others.
            least = int(wanted[:-1].argmin()) if len(wanted) > 1 else 0
            cells[least] += cells[-1] if len(wanted) > 1 else 0.0
            wanted[least] += wanted[-1] if len(wanted) > 1 else 0.0
            cells, wanted = cells[:-1], wanted[:-1]
        if len(wanted) > 1:
            statistic += float(((cells - wanted) ** 2 / wanted).sum())
            degrees += len(wanted) - 1
    return float(chi2.sf(statistic, degrees))
