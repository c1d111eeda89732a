"""Candidates of several pools in one order, the most valuable first, found as far as they are asked for.

Of all that the pools hold a pass takes a small part, so nothing is walked that is worth less than the last one asked for.
Within a pool an ancestor never comes after its descendant, because estimates are at most 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass


class Node:
    """A candidate token. Mutable; owned by its pool."""

    __slots__ = ("children", "depth", "drafter", "estimate", "token", "value")

    def __init__(self, token: int, depth: int, drafter: int, estimate: float, value: float) -> None:
        self.token = token
        """Token id."""
        self.depth = depth
        """Number of tokens from the start of the text to this one, this one included."""
        self.drafter = drafter
        """Which drafter proposed it first."""
        self.estimate = estimate
        """Probability that it is drawn if its parent is, as that drafter stated, 0 to 1."""
        self.value = value
        """Product of calibrated estimates from the pool's first root down to here."""
        self.children: dict[int, Node] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Candidates chosen for one pass, as parallel arrays in topological order."""

    tokens: list[int]
    """Token ids."""

    parents: list[int]
    """Index of the parent, -1 for the root."""

    nodes: list[Node]
    """The pool's own nodes."""

    values: list[float]
    """Estimated probability that each path is drawn; descending."""


class _Part:
    """What was found in one pool so far."""

    __slots__ = ("deepest", "key", "max_nodes", "nodes", "parents", "scale", "values")

    def __init__(self, key: int, root: Node, max_nodes: int, max_depth: int) -> None:
        self.key = key
        self.max_nodes = max_nodes
        self.deepest = root.depth + max_depth
        self.scale = 1.0 / root.value
        self.parents: list[int] = []
        self.nodes: list[Node] = []
        self.values: list[float] = []


class BestFirst:
    """A search through pools that do not change meanwhile."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        # Value below the root, negated; the node's own, negated: of two that scaling makes equal the greater comes first;
        # age, which breaks ties, so that the choice does not depend on object addresses.
        self._heap: list[tuple[float, float, int, _Part, int, Node]] = []

    def add(self, key: int, root: Node, max_nodes: int, max_depth: int) -> None:
        """Takes a pool in, before the search begins.

        Args:
            key: What `taken` shall call it.
            root: Its root.
            max_nodes: Of it, at most this many.
            max_depth: At most this deep below the root; at least 1.
        """
        part = _Part(key, root, max_nodes, max_depth)
        self._parts.append(part)
        heap, scale = self._heap, part.scale
        for child in root.children.values():
            value = -child.value
            heap.append((value * scale, value, len(heap), part, -1, child))

    def values(self) -> Iterator[float]:
        """The value of each candidate in turn, descending: the estimated probability that its path is drawn."""
        heap, push, replace = self._heap, heapq.heappush, heapq.heapreplace
        heapq.heapify(heap)
        age = len(heap)
        while heap:
            negative, _, _, part, parent, node = heap[0]
            nodes = part.nodes
            index = len(nodes)
            if index == part.max_nodes:
                heapq.heappop(heap)
                continue
            part.parents.append(parent)
            nodes.append(node)
            part.values.append(-negative)
            children = node.children
            if not children or node.depth >= part.deepest:
                heapq.heappop(heap)
            else:
                scale, is_first = part.scale, True
                for child in children.values():
                    value = -child.value
                    item = (value * scale, value, age, part, index, child)
                    if is_first:
                        replace(heap, item)
                        is_first = False
                    else:
                        push(heap, item)
                    age += 1
            yield -negative

    def taken(self, floor: float, max_nodes: int) -> dict[int, Selection]:
        """What was found of at least this value.

        Args:
            floor: The value.
            max_nodes: In all, at most; what exceeds it is left out of the pools that were taken in last.

        Returns:
            By key, in the order in which pools were taken in; only those that have any.
        """
        taken: dict[int, Selection] = {}
        for part in self._parts:
            values = part.values
            count = min(len(values), max_nodes)
            # Few were found in vain.
            while count and values[count - 1] < floor:
                count -= 1
            if count:
                max_nodes -= count
                nodes = part.nodes[:count]
                taken[part.key] = Selection(
                    tokens=[node.token for node in nodes],
                    parents=part.parents[:count],
                    nodes=nodes,
                    values=values[:count],
                )
        return taken
