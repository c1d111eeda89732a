"""Trees as plain Python, written to be obviously right: what the arrays are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Path = tuple[int, ...]


def paths_of(tokens: Sequence[int], parents: Sequence[int]) -> list[Path]:
    """Tokens from the root to each node; a parent of -1 is the root."""
    paths: list[Path] = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


@dataclass
class Node:
    """A candidate."""

    estimate: float
    scratch: int = -1
    sent: int = 0


@dataclass
class PlainTree:
    """Candidates by their path."""

    nodes: dict[Path, Node] = field(default_factory=dict)

    def value(self, path: Path) -> float:
        """Product of the estimates on a path."""
        value = 1.0
        for depth in range(1, len(path) + 1):
            value *= self.nodes[path[:depth]].estimate
        return value

    def walk(self, tokens: Sequence[int]) -> int:
        """How many of the tokens lead through nodes."""
        return next(
            (n for n in range(len(tokens)) if tuple(tokens[: n + 1]) not in self.nodes), len(tokens)
        )

    def run(self, path: Path) -> None:
        """Notes that a node was run."""
        self.nodes[path].scratch = sum(node.scratch >= 0 for node in self.nodes.values())

    def reroot(self, root: Path) -> list[int]:
        """Keeps what is below a node. Returns the scratch rows that stay."""
        below = {
            p[len(root) :]: n for p, n in self.nodes.items() if p[: len(root)] == root and p != root
        }
        self.nodes = below
        run = sorted((n for n in below.values() if n.scratch >= 0), key=lambda n: n.scratch)
        kept = [node.scratch for node in run]
        for row, node in enumerate(run):
            node.scratch = row
        return kept

    def unsend(self, seen: int) -> None:
        """Takes nodes as not sent whose last message is this one or an earlier one."""
        for node in self.nodes.values():
            if node.sent <= seen:
                node.sent = 0

    def take(self, room: int, floor: float, number: int, past: int = 0) -> set[Path]:
        """Paths of the nodes of a message; those of the first levels, which come too late, as ancestors only."""
        room -= sum(node.sent > 0 for node in self.nodes.values())
        fresh = [
            path
            for path, node in self.nodes.items()
            if not node.sent and self.value(path) >= floor and len(path) > past
        ]
        chosen = sorted(fresh, key=lambda p: (-self.value(p), len(p)))[: max(room, 0)]
        wanted = {path[:depth] for path in chosen for depth in range(1, len(path) + 1)}
        for path in wanted:
            self.nodes[path].sent = number
        return wanted


class Pool:
    """What a target holds of a drafter: paths below its text."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()

    def __len__(self) -> int:
        return len(self.paths)

    def graft(self, paths: Sequence[Path], since: Sequence[int] = ()) -> int:
        """Takes nodes of a base `since` which so much was committed. How many were new."""
        start = tuple(since)
        fresh = {p[len(start) :] for p in paths if p[: len(start)] == start and len(p) > len(start)}
        new = fresh - self.paths
        self.paths |= new
        return len(new)

    def reroot(self, tokens: Sequence[int]) -> None:
        """Goes along with committed tokens."""
        paths, self.paths = self.paths, set()
        self.graft(list(paths), tokens)
