"""The best tree of a block. Pure.

The candidates of a place are the same below every path, but for the path that a further step was told: below it they are that step's.

A node's value is the product of the estimates on its path. The best-valued node gets children first, as in trees that a model grows node by node
(`model/growing_drafter.py`); here no pass lies between.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from outrider.actors.draft.model.growing import LEAST_SENT
from outrider.actors.draft.trees.forest import ROOT


@dataclass(frozen=True, slots=True)
class Place:
    """Candidates for one token of a block, the likeliest first."""

    tokens: Sequence[int]
    estimates: Sequence[float]
    """Probability of each; 0: it is excluded."""
    slopes: Sequence[float]
    level: int
    """How far the token was from the last known one when it was foreseen."""


@dataclass(frozen=True, slots=True)
class DenoisingStep:
    """What a denoising step says."""

    told: tuple[int, ...]
    """The tokens that it was told. A later step is told those of the ones before it, and more."""
    places: Sequence[Place]
    """Candidates of the tokens behind those."""


@dataclass(slots=True)
class BlockTree:
    """Nodes, parents before children; columns as in a forest that was empty, so the first is number 1."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    estimates: list[float] = field(default_factory=list)
    slopes: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)


def best_tree(
    steps: Sequence[DenoisingStep],
    *,
    deepest: int,
    least: float,
    most: int,
    ends: Collection[int] = (),
) -> BlockTree:
    """Grows it.

    Args:
        steps: The first is told nothing.
        deepest: Tokens in a row that may be proposed, at most as many as a block has.
        least: Value from which on a node gets children.
        most: Nodes that get children beside the root, at most.
        ends: Tokens that end a text: nothing stands below them.
    """
    tree = BlockTree()
    # By depth, the step that is told the path there.
    steps_of = {len(step.told): number for number, step in enumerate(steps)}
    path = steps[-1].told
    offers: dict[tuple[int, int], tuple[int, list[tuple[int, float, float]]]] = {}
    # Of equal values the node that was there first. The number of a step, and whether the node is on the path that is told.
    waiting = [(-1.0, ROOT, 0, 0, True)]
    left = most + 1
    while waiting and left:
        value, column, depth, number, is_told = heapq.heappop(waiting)
        left -= 1
        if (number, depth) not in offers:
            step = steps[number]
            place = step.places[depth - len(step.told)]
            offers[number, depth] = place.level, _worth_sending(place)
        level, some = offers[number, depth]
        for token, estimate, slope in some:
            tree.tokens.append(token)
            tree.parents.append(column)
            tree.estimates.append(estimate)
            tree.slopes.append(slope)
            tree.levels.append(level)
            below = depth + 1
            if below >= deepest or -value * estimate <= least or token in ends:
                continue
            goes_on = is_told and depth < len(path) and path[depth] == token
            of = steps_of.get(below, number) if goes_on else number
            heapq.heappush(waiting, (value * estimate, len(tree.tokens), below, of, goes_on))
    return tree


def _worth_sending(place: Place) -> list[tuple[int, float, float]]:
    """Candidates that are not 0 on the wire; the best one in any case, if it is not excluded."""
    every = zip(place.tokens, place.estimates, place.slopes, strict=True)
    return [
        one
        for rank, one in enumerate(every)
        if one[1] >= LEAST_SENT or (rank == 0 and one[1] > 0.0)
    ]
