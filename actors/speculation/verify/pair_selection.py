"""Choosing one of two independent candidates so that the chosen one looks as much like the target as possible.

Source: Khisti, Ebrahimi, Dbouk, Behboodi, Memisevic, Louizos 2024, arXiv 2410.18234: the importance-weighted step with
the truncated linear program. The program is theirs; the rule for all other pairs of tokens is not:

1. Tokens are ordered by target / (law 1 + law 2): what would be proposed too seldom comes first. The better of two
   candidates wins, of equal ones the first.
2. Within a block of tokens, those with the greatest target - law 1 * law 2, the linear program says how often each wins.
3. That rule and "the first wins" are mixed, as far as the overlap of target and winner grows; then the order by target /
   law of the winner is mixed in, `_ROUNDS` - 1 times (steps of Frank and Wolfe). So the overlap is never less than that of
   target and first candidate, whatever the second one is.

Any rule whose law is known keeps the output exact: what is chosen badly costs acceptance.

The program is a flow problem: the mass of each pair of block tokens is divided between the two, and a token can use what
the target allows it. It is solved by shifting mass along shortest paths from tokens that have too much to tokens that
have too little, which ends at an optimum (Edmonds and Karp) and needs no solver.

Tokens may be grouped into classes (`tournament.py`); between two of one class the first wins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.sampling.random_acts import Float64s

Places = NDArray[np.intp]

DEFAULT_BLOCK = 5
"""Tokens among which the program chooses; the paper's default. With many tokens the orders do nearly as well alone; with a
handful the program makes up for what they cannot divide."""

_ROUNDS = 3
"""Rules in the mixture. Where rows are flat two more win .1 of acceptance with eight candidates; a fourth wins next to nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One way to choose, and what comes of it."""

    ranks_G: Places
    """Place of each class in the order, the best first."""

    kept_G: Float64s
    """Probability that a first candidate of the class wins."""

    gained_G: Float64s
    """The same of a second candidate."""

    law_G: Float64s
    """Law of the winner."""

    block_B: Places
    """Classes of one token each, among which the program chooses; may be empty."""

    shares_BB: Float64s
    """Probability that the token of the row wins against that of the column, by the program."""

    def first_wins(self, first: int, second: int) -> float:
        """Probability that a candidate of class `first` wins against another token, of class `second`."""
        places_1, places_2 = (np.flatnonzero(self.block_B == place) for place in (first, second))
        if len(places_1) and len(places_2) and first != second:
            return float(self.shares_BB[places_1[0], places_2[0]])
        return float(self.ranks_G[first] <= self.ranks_G[second])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairSelection:
    """How to choose between a first and a second candidate: a mixture of rules, and of "the first wins"."""

    law_G: Float64s
    """Law of the winner."""

    kept_G: Float64s
    """Probability that a first candidate of the class wins; not for classes of a block."""

    gained_G: Float64s
    """The same of a second candidate."""

    rules: Sequence[tuple[float, Rule]]
    """Rules with the probability of each; the first wins otherwise."""

    def first_wins(self, first: int, second: int) -> float:
        """Probability that a candidate of class `first` wins against another token, of class `second`."""
        loses = sum(share * (1.0 - rule.first_wins(first, second)) for share, rule in self.rules)
        return 1.0 - loses


def select_pair(
    target_G: Float64s,
    first_G: Float64s,
    second_G: Float64s,
    block: int = DEFAULT_BLOCK,
    singles: Places | None = None,
) -> PairSelection:
    """Solve the step for candidates drawn independently from `first_G` and `second_G`.

    Args:
        target_G: Mass of each class (a token, or several) in the target.
        first_G: In the law of the first candidate.
        second_G: In that of the second.
        block: Greatest number of tokens in the program.
        singles: Classes that are a single token; None: all.
    """
    law_G, kept_G, gained_G = first_G, np.ones(len(first_G)), np.zeros(len(first_G))
    rules: list[tuple[float, Rule]] = []
    for number in range(_ROUNDS):
        proposed_G = first_G + second_G if number == 0 else law_G
        rule = _ordered(target_G, proposed_G, first_G, second_G)
        if number == 0:
            rule = _with_program(rule, target_G, first_G, second_G, block, singles)
        share = best_share(target_G, law_G, rule.law_G)
        if share <= 0.0:
            break
        law_G = law_G + share * (rule.law_G - law_G) if share < 1.0 else rule.law_G
        kept_G = kept_G + share * (rule.kept_G - kept_G)
        gained_G = gained_G + share * (rule.gained_G - gained_G)
        rules = [(weight * (1.0 - share), other) for weight, other in rules]
        rules.append((share, rule))
    return PairSelection(law_G=law_G, kept_G=kept_G, gained_G=gained_G, rules=rules)


_NOWHERE: Places = np.zeros(0, dtype=np.intp)
_NO_SHARES: Float64s = np.zeros((0, 0))


def _ordered(
    target_G: Float64s, proposed_G: Float64s, first_G: Float64s, second_G: Float64s
) -> Rule:
    """The better one wins, by target / proposed; of equal classes the lower one is the better, on every machine."""
    scores_G = np.zeros(len(target_G))
    with np.errstate(over="ignore"):
        np.divide(target_G, proposed_G, out=scores_G, where=proposed_G > 0.0)
    order_G = np.argsort(-scores_G, kind="stable")
    ranks_G = np.empty_like(order_G)
    ranks_G[order_G] = np.arange(len(order_G))
    # Summed from the end, so that rounding never makes what is left negative.
    kept_G = np.cumsum(second_G[order_G][::-1])[::-1][ranks_G]
    gained_G = np.append(np.cumsum(first_G[order_G][::-1])[-2::-1], 0.0)[ranks_G]
    law_G = first_G * kept_G + second_G * gained_G
    return Rule(ranks_G, kept_G, gained_G, law_G, _NOWHERE, _NO_SHARES)


def _with_program(
    rule: Rule,
    target_G: Float64s,
    first_G: Float64s,
    second_G: Float64s,
    block: int,
    singles: Places | None,
) -> Rule:
    """The rule with the program in the place of the order within the block."""
    scores_G = target_G - first_G * second_G
    possible = np.flatnonzero(first_G + second_G) if singles is None else singles
    block_B = possible[np.argsort(-scores_G[possible], kind="stable")[:block]]
    first_B, second_B, ranks_B = first_G[block_B], second_G[block_B], rule.ranks_G[block_B]
    mass_BB = np.outer(first_B, second_B)
    ordered_BB = np.where(ranks_B[:, None] < ranks_B, mass_BB + mass_BB.T, 0.0)
    mass_BB = mass_BB + mass_BB.T
    np.fill_diagonal(mass_BB, 0.0)
    fixed_B = np.maximum(rule.law_G[block_B] - ordered_BB.sum(axis=1), 0.0)
    won_BB = divide(mass_BB, np.maximum(target_G[block_B] - fixed_B, 0.0))
    law_G = rule.law_G.copy()
    law_G[block_B] = fixed_B + won_BB.sum(axis=1)
    shares_BB = np.divide(won_BB, mass_BB, out=np.zeros_like(won_BB), where=mass_BB > 0.0)
    return Rule(rule.ranks_G, rule.kept_G, rule.gained_G, law_G, block_B, shares_BB)


def best_share(target_G: Float64s, law_G: Float64s, other_G: Float64s) -> float:
    """The share s in [0, 1] for which sum(min(target, law + s * (other - law))) is greatest, the least of these.

    The sum is concave, and linear between the points where a token crosses the target: its slope is followed from point to
    point until it is no longer positive.
    """
    change_G, room_G = other_G - law_G, target_G - law_G
    slope = float(change_G[room_G > 0.0].sum() + np.minimum(change_G[room_G == 0.0], 0.0).sum())
    if slope <= 0.0:
        return 0.0
    # Those that cross on the way: in the direction of the target, and beyond it.
    is_crossing_G = (room_G * change_G > 0.0) & (np.abs(room_G) < np.abs(change_G))
    turns_C = np.abs(change_G[is_crossing_G])
    shares_C = np.abs(room_G[is_crossing_G]) / turns_C
    order_C = np.argsort(shares_C, kind="stable")
    ends = np.flatnonzero(slope - np.cumsum(turns_C[order_C]) <= 0.0)
    return float(shares_C[order_C[ends[0]]]) if len(ends) else 1.0


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
