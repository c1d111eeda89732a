"""A candidate pool in loops, as a paper would describe it: the reference for `pools.Pools`."""

from __future__ import annotations

from dataclasses import dataclass, field

LEAST = 1.0 / 512.0


@dataclass
class PlainNode:
    """A candidate."""

    drafter: int
    estimate: float
    children: dict[int, PlainNode] = field(default_factory=dict)


class PlainPool:
    """Candidates of one session."""

    def __init__(self) -> None:
        self.root = PlainNode(-1, 1.0)

    def graft(
        self,
        tokens: list[int],
        parents: list[int],
        estimates: list[int],
        passed: list[int],
        drafter: int,
    ) -> tuple[int, int]:
        """Returns how many nodes were added, and how many are off the text."""
        places: list[PlainNode | int | None] = []
        added = stale = 0
        start: PlainNode | int = self.root if not passed else 0
        for token, parent, estimate in zip(tokens, parents, estimates, strict=True):
            place = start if parent < 0 else places[parent]
            if isinstance(place, PlainNode):
                child = place.children.get(token)
                if child is None:
                    child = PlainNode(drafter, max(estimate / 255.0, LEAST))
                    place.children[token] = child
                    added += 1
                places.append(child)
            elif place is not None and token == passed[place]:
                places.append(self.root if place + 1 == len(passed) else place + 1)
            else:
                stale += 1
                places.append(None)
        return added, stale

    def reroot(self, tokens: list[int]) -> None:
        """Moves the root along tokens."""
        for token in tokens:
            self.root = self.root.children.get(token, PlainNode(-1, 1.0))

    def foreseen(self, tokens: list[int]) -> int:
        """How many of the tokens are on a path from the root."""
        node, count = self.root, 0
        for token in tokens:
            if token not in node.children:
                break
            node, count = node.children[token], count + 1
        return count

    def paths(self) -> dict[tuple[int, ...], tuple[float, int]]:
        """Value and drafter of every path."""
        found: dict[tuple[int, ...], tuple[float, int]] = {}
        stack: list[tuple[tuple[int, ...], float, PlainNode]] = [((), 1.0, self.root)]
        while stack:
            path, value, node = stack.pop()
            for token, child in node.children.items():
                found[(*path, token)] = value * child.estimate, child.drafter
                stack.append(((*path, token), value * child.estimate, child))
        return found
