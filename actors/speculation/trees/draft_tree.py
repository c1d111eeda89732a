"""A frozen tree of candidates as the verifiers read it: parallel arrays in topological order.

The order of siblings in the arrays is the order in which they were drawn; for most methods that order is part of the
law, so nothing may be moved, merged or removed once a token has been drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Replacement(StrEnum):
    """How the siblings of one node were drawn."""

    WITH = "with"
    """Independently; equal siblings are separate nodes."""

    WITHOUT = "without"
    """One after the other from what the earlier ones left; all siblings differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTree:
    """Candidate tokens below one committed text."""

    tokens_N: tuple[int, ...]
    """Token id of each node."""

    parents_N: tuple[int, ...]
    """Node index of each parent, -1 for the root; less than the node's own index."""

    sources_N: tuple[int, ...] = ()
    """Row of the draft probabilities that each node was drawn from; empty if the tree has none. Siblings share a row,
    unless different drafters proposed them."""

    replacement: Replacement = Replacement.WITH
    """How siblings were drawn."""

    def __post_init__(self) -> None:
        """Check that the arrays belong together.

        Raises:
            ValueError: They do not; the message says which.
        """
        num_nodes = len(self.tokens_N)
        if len(self.parents_N) != num_nodes:
            raise ValueError(f"parents_N has {len(self.parents_N)} entries for {num_nodes} tokens")
        if len(self.sources_N) not in (0, num_nodes):
            raise ValueError(
                f"sources_N has {len(self.sources_N)} entries for {num_nodes} tokens; one each, or none"
            )
        for node, parent in enumerate(self.parents_N):
            if not -1 <= parent < node:
                raise ValueError(
                    f"parent of node {node} is {parent}; it must be at least -1 and less than the node's index"
                )
        for node, source in enumerate(self.sources_N):
            if source < 0:
                raise ValueError(f"source of node {node} is {source}; it must be a row, 0 or more")

    @property
    def num_nodes(self) -> int:
        """Number of candidates."""
        return len(self.tokens_N)

    @property
    def is_chain(self) -> bool:
        """True if each node is the child of the one before."""
        return self.parents_N == tuple(range(-1, self.num_nodes - 1))

    def path(self, node: int) -> list[int]:
        """Tokens from the committed text down to a node, its own included; -1 is the text itself."""
        tokens: list[int] = []
        while node >= 0:
            tokens.append(self.tokens_N[node])
            node = self.parents_N[node]
        return tokens[::-1]

    def children(self) -> dict[int, list[int]]:
        """The children of each internal node (-1: the root) in draw order."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents_N):
            children.setdefault(parent, []).append(node)
        return children


def sources_by_parent(parents_N: Sequence[int]) -> tuple[int, ...]:
    """Sources of a tree of one drafter: one row for each internal node, the root's first, then by node index."""
    rows = {parent: row for row, parent in enumerate(sorted(set(parents_N)))}
    return tuple(rows[parent] for parent in parents_N)
