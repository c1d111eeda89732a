"""Goodness-of-fit: how surprising counts would be if a hypothesis were true.

Tests use fixed seeds, so they never flicker; `MIN_P` is chosen so that a correct implementation would fail any of
the (at most 100) tests under one seed in ten thousand choices of seeds, at most.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

MIN_P = 1e-6
"""Counts less likely than this under the hypothesis reject it."""

_LEAST_EXPECTED = 8.0
"""Cells expecting fewer are pooled: the chi-square law needs some counts in each."""


def chi_square_p(observed: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """Return the probability of counts at least as far from the expected ones.

    A count where the probability is 0 gives 0.
    """
    observed, probabilities = observed.ravel(), probabilities.ravel()
    if bool((observed[probabilities == 0] > 0).any()):
        return 0.0
    expected = probabilities / probabilities.sum() * observed.sum()
    rare = expected < _LEAST_EXPECTED
    cells = np.append(observed[~rare], observed[rare].sum())
    wanted = np.append(expected[~rare], expected[rare].sum())
    if wanted[-1] < _LEAST_EXPECTED:
        cells, wanted = cells[:-1], wanted[:-1]
    statistic = float(((cells - wanted) ** 2 / wanted).sum())
    return _chi_square_tail(statistic, max(1, len(cells) - 1))


def uniform_p(observed: NDArray[np.int64]) -> float:
    """Return `chi_square_p` for equal probabilities."""
    return chi_square_p(observed, np.ones(observed.size))


def independence_p(first: NDArray[np.int64], second: NDArray[np.int64], num: int) -> float:
    """Return how likely a table of pairs of values below `num` is if the two are independent."""
    table = np.bincount(first * num + second, minlength=num * num).reshape(num, num)
    product = np.outer(table.sum(1), table.sum(0)).astype(np.float64)
    expected = product / product.sum() * table.sum()
    kept = expected >= _LEAST_EXPECTED
    statistic = float((((table - expected) ** 2) / np.where(kept, expected, 1.0))[kept].sum())
    return _chi_square_tail(statistic, (num - 1) ** 2)


def kolmogorov_p(uniforms: NDArray[np.float64]) -> float:
    """Return the probability of a distribution function at least as far from the uniform one (many samples)."""
    ordered, num = np.sort(uniforms.ravel()), uniforms.size
    below = float((np.arange(1, num + 1) / num - ordered).max())
    above = float((ordered - np.arange(num) / num).max())
    scaled = max(below, above) * math.sqrt(num)
    terms = (-1) ** np.arange(100) * np.exp(-2.0 * (np.arange(1, 101) * scaled) ** 2)
    return min(1.0, 2.0 * float(terms.sum()))


def _chi_square_tail(statistic: float, degrees: int) -> float:
    half = torch.tensor([degrees / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
