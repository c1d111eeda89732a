"""The candidate pool of one session: a trie of tokens below the committed text, fed by any number of drafters.

Grafting is a set union, so messages may be lost, repeated or overtaken. Re-rooting keeps what grew below the tokens
that were committed. Choosing is best first by the estimated probability that the whole path is drawn; an ancestor never
comes after its descendant, because estimates are at most 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SMALLEST_ROOT_VALUE = 1e-60
"""Below this the products of estimates are rescaled; far above the smallest double, far below any real path."""


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

    def down_to(self, floor: float, limit: int) -> Selection:
        """The part of at least this value, at most so many nodes. Ancestors come first, so it is whole."""
        count = 0
        while count < min(limit, len(self.values)) and self.values[count] >= floor:
            count += 1
        if count == len(self.values):
            return self
        return Selection(
            tokens=self.tokens[:count],
            parents=self.parents[:count],
            nodes=self.nodes[:count],
            values=self.values[:count],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grafted:
    """What a graft did."""

    added: int
    """Nodes that are new in the pool."""

    stale: int
    """Nodes that lie off the committed path."""

    refused: int
    """Nodes for which the pool had no room."""


class CandidatePool:
    """Candidates of one session. Used by one thread."""

    def __init__(self, length: int, capacity: int) -> None:
        """Makes an empty pool.

        Args:
            length: Number of committed tokens.
            capacity: Greatest number of nodes to hold.
        """
        self._root = Node(-1, length, -1, 1.0, 1.0)
        self._capacity = capacity
        self.size = 0
        """Number of candidate nodes."""

    def __len__(self) -> int:
        return self.size

    @property
    def length(self) -> int:
        """Number of committed tokens."""
        return self._root.depth

    def graft(
        self,
        tokens: Sequence[int],
        parents: Sequence[int],
        estimates: Sequence[float],
        drafter: int,
        passed: Sequence[int],
        calibrate: Callable[[float], float],
    ) -> Grafted:
        """Unites a drafter's tree with the pool.

        Args:
            tokens: Token id of each node.
            parents: Index of the parent plus one, 0 for a child of the tree's base; `parents[i] <= i`.
            estimates: Stated probability of each node given its parent.
            drafter: Who sent it.
            passed: The tokens that were committed since the tree's base, oldest first.
            calibrate: Stated probability to expected probability.
        """
        gap = len(passed)
        # Where each node of the message lies: a pool node, the number of passed tokens it stands for, or None (stale).
        places: list[Node | int | None] = [self._root if gap == 0 else 0]
        added = stale = refused = 0
        for token, parent, estimate in zip(tokens, parents, estimates, strict=True):
            place = places[parent]
            if isinstance(place, Node):
                child = place.children.get(token)
                if child is None and self.size < self._capacity:
                    child = Node(
                        token,
                        place.depth + 1,
                        drafter,
                        estimate,
                        place.value * calibrate(estimate),
                    )
                    place.children[token] = child
                    self.size += 1
                    added += 1
                elif child is None:
                    refused += 1
                places.append(child)
            elif place is None:
                stale += 1
                places.append(None)
            elif token == passed[place]:
                places.append(self._root if place + 1 == gap else place + 1)
            else:
                stale += 1
                places.append(None)
        return Grafted(added=added, stale=stale, refused=refused)

    def select(self, max_nodes: int, max_depth: int) -> Selection:
        """Chooses the most valuable nodes.

        Args:
            max_nodes: At most this many.
            max_depth: At most this deep below the root.
        """
        tokens: list[int] = []
        parents: list[int] = []
        nodes: list[Node] = []
        values: list[float] = []
        root = self._root
        deepest = root.depth + max_depth
        scale = 1.0 / root.value
        # The counter breaks ties by age, so that the choice does not depend on object addresses.
        heap = [(-child.value, age, -1, child) for age, child in enumerate(root.children.values())]
        counter = len(heap)
        heapq.heapify(heap)
        while heap and len(nodes) < max_nodes:
            negative, _, parent, node = heapq.heappop(heap)
            index = len(nodes)
            tokens.append(node.token)
            parents.append(parent)
            nodes.append(node)
            values.append(-negative * scale)
            if node.depth < deepest:
                for child in node.children.values():
                    heapq.heappush(heap, (-child.value, counter, index, child))
                    counter += 1
        return Selection(tokens=tokens, parents=parents, nodes=nodes, values=values)

    def best_value(self) -> float:
        """Estimated probability of the most probable candidate, 0 if there is none."""
        if not self._root.children:
            return 0.0
        return max(child.value for child in self._root.children.values()) / self._root.value

    def reroot(self, tokens: Sequence[int]) -> int:
        """Moves the root along committed tokens.

        Returns:
            Number of nodes that were dropped because the text went another way.
        """
        root: Node | None = self._root
        walked = 0
        for token in tokens:
            root = root.children.get(token) if root is not None else None
            if root is None:
                break
            walked += 1
        if root is None:
            dropped = self.size - walked
            self._root = Node(-1, self._root.depth + len(tokens), -1, 1.0, 1.0)
            self.size = 0
            return dropped
        before = self.size
        self._root = root
        self.size = self._count(root)
        if root.value < SMALLEST_ROOT_VALUE:
            self._rescale(root)
        return before - walked - self.size

    def sort_out(
        self, tokens: Sequence[int], *, is_over: bool = False
    ) -> tuple[list[Node], list[Node]]:
        """What `reroot` would do, without doing it.

        Args:
            tokens: As for `reroot`.
            is_over: Nothing is to stay.

        Returns:
            The nodes that the tokens lead through, and those that would be dropped.
        """
        walked: list[Node] = []
        root: Node | None = self._root
        for token in tokens:
            root = root.children.get(token) if root is not None else None
            if root is not None:
                walked.append(root)
        stays = root if not is_over else None
        dropped: list[Node] = []
        on_path = {id(node) for node in walked}
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node is stays:
                continue
            for child in node.children.values():
                if id(child) not in on_path:
                    dropped.append(child)
                stack.append(child)
        return walked, dropped

    def _count(self, root: Node) -> int:
        count = 0
        stack = [root]
        while stack:
            children = stack.pop().children.values()
            count += len(children)
            stack.extend(children)
        return count

    def _rescale(self, root: Node) -> None:
        factor = 1.0 / root.value if root.value > 0.0 else 0.0
        stack = [root]
        while stack:
            node = stack.pop()
            node.value *= factor
            stack.extend(node.children.values())
        root.value = 1.0
