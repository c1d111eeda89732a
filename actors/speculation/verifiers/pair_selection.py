"""Choosing one of two independent candidates so that the chosen one looks as much like the target as possible.

Source: Khisti, Ebrahimi, Dbouk, Behboodi, Memisevic, Louizos 2024, arXiv 2410.18234: the importance-weighted step with
the truncated linear program. Tokens are ordered by target - draft1 * draft2, descending. Of two different candidates the
earlier one wins, unless both are in the leading block: there the program chooses how often each wins. It maximises
sum(min(target, law of the winner)), and any solution keeps the output exact.

The program is a flow problem: the mass of each pair of block tokens is divided between the two, and a token can use what
the target allows it. It is solved by shifting mass along shortest paths from tokens that have too much to tokens that
have too little, which ends at an optimum (Edmonds and Karp) and needs no solver.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from outrider.actors.speculation.decisions import Float64s

DEFAULT_BLOCK = 5
"""Tokens among which the program chooses; the paper's default. On random rows of 6 tokens five lose .001 of acceptance to
the optimum where rows are peaked (Dirichlet .5), .004 where they are flat (Dirichlet 1)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairSelection:
    """How to choose between a first and a second candidate."""

    law_V: Float64s
    """Law of the winner."""

    ranks: dict[int, int]
    """Place of each possible token in the order; the leading ones are the block."""

    shares_SS: Float64s
    """Probability that the token of the row wins against that of the column, for tokens of the block."""

    def first_wins(self, first: int, second: int) -> float:
        """Probability that token `first` wins against another token `second`."""
        rank_1, rank_2 = self.ranks[first], self.ranks[second]
        if max(rank_1, rank_2) < len(self.shares_SS):
            return float(self.shares_SS[rank_1, rank_2])
        return float(rank_1 < rank_2)


def select_pair(
    target_V: Float64s, first_V: Float64s, second_V: Float64s, block: int = DEFAULT_BLOCK
) -> PairSelection:
    """Solve the step for candidates drawn independently from `first_V` and `second_V`."""
    support = np.flatnonzero((first_V > 0.0) | (second_V > 0.0))
    score_S = target_V[support] - first_V[support] * second_V[support]
    order_S = support[np.argsort(-score_S, kind="stable")]
    first_S, second_S = first_V[order_S], second_V[order_S]
    later_1, later_2 = _later(first_S), _later(second_S)
    law_S = first_S * second_S + first_S * later_2 + second_S * later_1

    size = min(block, len(order_S))
    first_B, second_B = first_S[:size], second_S[:size]
    beyond_1, beyond_2 = later_1[size - 1], later_2[size - 1]
    fixed_B = first_B * second_B + first_B * beyond_2 + second_B * beyond_1
    mass_BB = np.outer(first_B, second_B)
    mass_BB = mass_BB + mass_BB.T
    np.fill_diagonal(mass_BB, 0.0)
    won_BB = divide(mass_BB, np.maximum(target_V[order_S[:size]] - fixed_B, 0.0))
    law_S[:size] = fixed_B + won_BB.sum(axis=1)

    law_V = np.zeros_like(target_V)
    law_V[order_S] = law_S
    shares_BB = np.divide(won_BB, mass_BB, out=np.zeros_like(won_BB), where=mass_BB > 0.0)
    ranks = {int(token): rank for rank, token in enumerate(order_S)}
    return PairSelection(law_V=law_V, ranks=ranks, shares_SS=shares_BB)


def _later(probs_S: Float64s) -> Float64s:
    """Mass after each place. Summed from the end, so that rounding never makes it negative."""
    sums = np.cumsum(probs_S[::-1])[::-1]
    return np.append(sums[1:], 0.0)


def divide(mass_BB: Float64s, wanted_B: Float64s) -> Float64s:
    """Divide the mass of each pair so that as much as possible goes where it is wanted.

    Args:
        mass_BB: Symmetric, diagonal 0: mass of each unordered pair of tokens.
        wanted_B: How much each token can use.

    Returns:
        What the token of the row gets from its pair with that of the column; with its transpose, `mass_BB`.
    """
    won_BB = np.triu(mass_BB)
    balance_B = won_BB.sum(axis=1) - wanted_B
    while True:
        route = _route(won_BB, balance_B)
        if route is None:
            return won_BB
        edges = list(pairwise(route))
        amount = min(balance_B[route[0]], -balance_B[route[-1]], *(won_BB[edge] for edge in edges))
        for giver, taker in edges:
            won_BB[giver, taker] -= amount
            won_BB[taker, giver] = mass_BB[giver, taker] - won_BB[giver, taker]
        balance_B[route[0]] -= amount
        balance_B[route[-1]] += amount


_SMALLEST_SHIFT = 1e-15
"""Too much or too little mass below this is rounding."""


def _route(won_BB: Float64s, balance_B: Float64s) -> list[int] | None:
    """A shortest way from a token that has too much to one that has too little, each giving to the next."""
    size = len(balance_B)
    starts = [token for token in range(size) if balance_B[token] > _SMALLEST_SHIFT]
    before: dict[int, int | None] = dict.fromkeys(starts)
    queue = deque(starts)
    while queue:
        token = queue.popleft()
        if balance_B[token] < -_SMALLEST_SHIFT:
            route = [token]
            while (previous := before[route[-1]]) is not None:
                route.append(previous)
            return route[::-1]
        for taker in range(size):
            if taker not in before and won_BB[token, taker] > _SMALLEST_SHIFT:
                before[taker] = token
                queue.append(taker)
    return None
