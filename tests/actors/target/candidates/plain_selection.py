"""Which candidates a pass takes, by trying all of them: the reference for `schedule.selection`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Candidate:
    """A node of one session's tree."""

    session: int
    parent: int
    """Place among all candidates, -1 for the text."""
    value: float
    """Probability that its path is drawn."""
    depth: int
    """Tokens between the text and the node, itself included."""


def best_subset(
    candidates: Sequence[Candidate],
    *,
    num_sessions: int,
    max_depths: Sequence[int],
    budgets: Sequence[int],
    max_nodes: int,
    seconds: Callable[[int], float],
) -> tuple[frozenset[int], float]:
    """The set of candidates, each with its ancestors, that commits most tokens in a second, and that rate; of several as good
    the smallest.

    Args:
        candidates: Of all sessions.
        num_sessions: Each of which commits a token of its own.
        max_depths: Of each session.
        budgets: Candidates of each, at most.
        max_nodes: Candidates in all, at most.
        seconds: Of a pass over so many candidates.
    """
    best, best_rate = frozenset[int](), num_sessions / seconds(0)
    for size in range(1, min(len(candidates), max_nodes) + 1):
        for subset in combinations(range(len(candidates)), size):
            chosen = [candidates[place] for place in subset]
            if any(one.parent >= 0 and one.parent not in subset for one in chosen):
                continue
            if any(one.depth > max_depths[one.session] for one in chosen):
                continue
            if any(
                sum(one.session == session for one in chosen) > budgets[session]
                for session in range(num_sessions)
            ):
                continue
            rate = (num_sessions + sum(one.value for one in chosen)) / seconds(size)
            if rate > best_rate * (1.0 + 1e-12):
                best, best_rate = frozenset(subset), rate
    return best, best_rate
