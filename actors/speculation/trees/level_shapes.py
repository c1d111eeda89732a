"""Shapes of static trees: how many children the nodes of each level get, laid out level by level.

With the configuration (4, 2, 2) every root has 4 children, each of those 2, each of those 2: levels of 4, 8 and 16 nodes.
Children of one parent are neighbours, in draw order; levels follow each other. So the first levels of a tree are the
first nodes of its arrays.

Source: Yang et al. 2024, arXiv 2401.06706 (k-configurations).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import mul

MAX_NODES = 4096
"""Nodes of a shape. More is a slip of the pen: no pass verifies that many."""


@dataclass(frozen=True, slots=True)
class LevelShape:
    """A tree by the number of children at each depth."""

    branching: tuple[int, ...]
    """Children of each node of a level, from the root's down; empty is no tree at all."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: One is less than 1, or the tree is too large.
        """
        if any(count < 1 for count in self.branching):
            raise ValueError(f"tree shape {self}: every level needs at least 1 child a node")
        if self.num_nodes > MAX_NODES:
            raise ValueError(
                f"tree shape {self} has {self.num_nodes} nodes; at most {MAX_NODES} are possible"
            )

    def __str__(self) -> str:
        """As `parse` reads it."""
        return ",".join(map(str, self.branching))

    @property
    def depth(self) -> int:
        """Number of levels."""
        return len(self.branching)

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """Number of nodes of each level."""
        return tuple(accumulate(self.branching, mul))

    @property
    def num_nodes(self) -> int:
        """Number of nodes, the root not counted."""
        return sum(self.level_sizes)

    @property
    def num_internal(self) -> int:
        """Number of nodes with children, the root counted: one row of draft probabilities each."""
        return sum((1, *self.level_sizes)[: self.depth])

    @property
    def parents_N(self) -> tuple[int, ...]:
        """Node index of each parent, -1 for the root."""
        parents: list[int] = []
        level = [-1]
        for count in self.branching:
            start = len(parents)
            parents.extend(node for node in level for _ in range(count))
            level = list(range(start, len(parents)))
        return tuple(parents)

    def prefix(self, levels: int) -> LevelShape:
        """The first levels: the first nodes of the same arrays."""
        return LevelShape(self.branching[:levels])


def parse(text: str) -> LevelShape:
    """Read a k-configuration such as `4,2,2`.

    Raises:
        ValueError: It is not a list of whole numbers of at least 1, or the tree is too large.
    """
    try:
        branching = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"tree shape is {text!r}; write the children of each level, for example 4,2,2"
        ) from None
    return LevelShape(branching)


def chain(length: int) -> LevelShape:
    """One candidate after the other."""
    return LevelShape((1,) * length)
