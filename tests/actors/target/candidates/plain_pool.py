"""A candidate pool in loops, as a paper would describe it: the reference for `candidate_pools.Pools`."""

from __future__ import annotations

from dataclasses import dataclass, field

LEAST = 1.0 / 512.0


@dataclass
class PlainNode:
    """A candidate."""

    drafter: int
    stated: float
    believed: float
    children: dict[int, PlainNode] = field(default_factory=dict)


class PlainPool:
    """Candidates of one session."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.root = PlainNode(-1, 1.0, 1.0)

    def graft(
        self,
        tree: tuple[list[int], list[int], list[int]],
        passed: list[int],
        drafter: int,
        trust: float,
    ) -> tuple[int, int, int]:
        """Returns how many nodes were added, are off the text, and found no room."""
        places: list[PlainNode | int | str] = []
        added, size = 0, len(self.paths())
        start: PlainNode | int = self.root if not passed else 0
        for token, parent, estimate in zip(*tree, strict=True):
            place = start if parent < 0 else places[parent]
            if isinstance(place, PlainNode):
                if token not in place.children and size + added < self.capacity:
                    stated = estimate / 255.0
                    place.children[token] = PlainNode(drafter, stated, max(trust * stated, LEAST))
                    added += 1
                places.append(place.children.get(token, "refused"))
            elif isinstance(place, int) and token == passed[place]:
                places.append(self.root if place + 1 == len(passed) else place + 1)
            else:
                places.append("refused" if place == "refused" else "stale")
        return added, places.count("stale"), places.count("refused")

    def add_child(self, token: int, value: float, drafter: int) -> None:
        """Adds a child of the text."""
        if token not in self.root.children and len(self.paths()) < self.capacity:
            self.root.children[token] = PlainNode(drafter, value, value)

    def reroot(self, tokens: list[int]) -> None:
        """Moves the root along tokens."""
        for token in tokens:
            self.root = self.root.children.get(token, PlainNode(-1, 1.0, 1.0))

    def foreseen(self, tokens: list[int]) -> int:
        """How many of the tokens are on a path from the root."""
        node, count = self.root, 0
        for token in tokens:
            if token not in node.children:
                break
            node, count = node.children[token], count + 1
        return count

    def paths(self) -> dict[tuple[int, ...], tuple[float, float, int]]:
        """Value, stated probability and drafter of every path."""
        found: dict[tuple[int, ...], tuple[float, float, int]] = {}
        stack: list[tuple[tuple[int, ...], float, PlainNode]] = [((), 1.0, self.root)]
        while stack:
            path, value, node = stack.pop()
            for token, child in node.children.items():
                found[(*path, token)] = value * child.believed, child.stated, child.drafter
                stack.append(((*path, token), value * child.believed, child))
        return found

    def open(self, reach: int) -> float:
        """Value of the leaves above a depth; 1 without candidates."""
        paths = self.paths()
        inner = {path[:-1] for path in paths}
        leaves = [path for path in paths if path not in inner and len(path) < reach]
        return sum(paths[path][0] for path in leaves) if paths else 1.0
