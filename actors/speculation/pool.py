"""The candidate pool of one session: a trie of tokens below the committed text, fed by any number of drafters.

Grafting is a set union, so messages may be lost, repeated or overtaken. Re-rooting keeps what grew below the tokens
that were committed. Choosing is best first by the estimated probability that the whole path is drawn (`best_first.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.actors.speculation.best_first import BestFirst, Node, Selection

__all__ = ["CandidatePool", "Grafted", "Node", "Selection"]

LEAST_ESTIMATE = 1.0 / 1024.0
"""Candidates are worth at least this, given their parent. One worth nothing would make all that grows below it worth nothing, also
once it is committed and what it was worth is past."""

SMALLEST_ROOT_VALUE = 1e-60
"""Below this the products of estimates are rescaled; far above the smallest double, far below any real path."""


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
                        place.value * max(calibrate(estimate), LEAST_ESTIMATE),
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
        search = BestFirst()
        self.offer(search, 0, max_nodes, max_depth)
        for _ in search.values():
            pass
        nothing = Selection(tokens=[], parents=[], nodes=[], values=[])
        return search.taken(0.0, max_nodes).get(0, nothing)

    def offer(self, search: BestFirst, key: int, max_nodes: int, max_depth: int) -> None:
        """Lets its most valuable nodes compete with those of other pools.

        Args:
            search: Where.
            key: What the search shall call it.
            max_nodes: As for `select`.
            max_depth: As for `select`.
        """
        search.add(key, self._root, max_nodes, max_depth)

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
