"""The tree of what may follow, from counts: best first, until it is as large as it may be or nothing likely is left. Pure.

A node's value is the product of the rates on its path, the probability that the target gets there; the sum of all values, the *score*, is the number
of tokens that are expected to be accepted (Oliaro et al. 2024, arXiv 2411.04975).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outrider.actors.draft.text.counted_law import CountedLaw
from outrider.actors.draft.text.occurrences import Texts, followers
from outrider.actors.draft.text.proposal import Proposal

Children = Callable[[int, Sequence[int]], Mapping[int, tuple[int, Sequence[int]]]]
"""From the depth below the text and the places of a node to its children: for each token how often it followed, and its places."""


LEAST = 0.01
"""Value below which nothing is proposed. Less than a candidate is worth in most places; the sender keeps back what is not worth its bytes."""


def children_in(texts: Texts) -> Children:
    """Children as a suffix tree of texts has them: by the whole path."""

    def children(depth: int, places: Sequence[int]) -> Mapping[int, tuple[int, Sequence[int]]]:
        found = followers(texts, places)
        return {token: (len(behind), behind) for token, behind in found.items()}

    return children


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthBounds:
    """How large a tree may be."""

    depth: int
    """Tokens of a path."""
    nodes: int
    width: int
    """Children of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A tree and what it is worth."""

    proposal: Proposal
    score: float


NOTHING = Grown(proposal=Proposal(), score=0.0)


def grow(
    places: Sequence[int],
    children: Children,
    *,
    match: int,
    position: int,
    law: CountedLaw,
    rates: Sequence[float],
    bounds: GrowthBounds,
) -> Grown:
    """The best tree below a text.

    Args:
        places: Where what may follow stands.
        children: Says what follows what.
        match: Tokens before the places that agree with the text.
        position: Length of the text.
        law: Ranks candidates.
        rates: Of each kind.
        bounds: On the tree.
    """
    tokens: list[int] = []
    parents: list[int] = []
    kinds: list[int] = []
    score = 0.0
    order = itertools.count()
    heap: list[tuple[float, int, int, int, int, int, Sequence[int]]] = []

    def offer(below: Sequence[int], parent: int, depth: int, value: float) -> None:
        found = children(depth, below)
        counts = [(token, count) for token, (count, _) in found.items()]
        ranked = law.ranked(counts, position + depth)
        for rank, one in enumerate(ranked[: bounds.width]):
            kind = law.kind(match=match + depth, rank=rank, chance=one.chance)
            reach = value * rates[kind]
            if reach >= LEAST:
                entry = (-reach, next(order), parent, one.token, kind, depth, found[one.token][1])
                heapq.heappush(heap, entry)

    offer(places, -1, 0, 1.0)
    while heap and len(tokens) < bounds.nodes:
        value, _, parent, token, kind, depth, below = heapq.heappop(heap)
        tokens.append(token)
        parents.append(parent)
        kinds.append(kind)
        score -= value
        if depth + 1 < bounds.depth:
            offer(below, len(tokens) - 1, depth + 1, -value)
    return Grown(proposal=Proposal(tokens=tokens, parents=parents, kinds=kinds), score=score)
