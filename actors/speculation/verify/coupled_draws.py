"""Coupled verification: a candidate survives only if it is the target's own draw.

Source: Daliri, Musco, Suresh 2024, arXiv 2408.07978 (drafter-invariant speculation by shared Gumbel noise), here on
trees. Because the noise is fixed by seed, position and token, the output is the one of plain decoding with the same
seed, whatever the tree. At temperature 0 the draw is the argmax and the rule is the longest matching path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The way of one round through a tree."""

    path: tuple[int, ...]
    """Accepted nodes, from the root down."""

    tokens: tuple[int, ...]
    """What the round commits: the tokens of `path`, then the target's last draw, which no node matched."""


def walk(
    tokens_N: Sequence[int], parents_N: Sequence[int], draw: Callable[[int], int], limit: int
) -> Walk:
    """Follows the target's draws down a tree.

    Args:
        tokens_N: Token id of each candidate node.
        parents_N: Parent of each node, -1 for the root; topological.
        draw: The target's draw after a node, -1 for the draw after the root. Called once for each node of the way,
            in order; siblings of equal token are one node.
        limit: Greatest number of tokens to commit, at least 1.

    Returns:
        The accepted path and the tokens to commit, at least one, at most `limit`. At most `limit - 1` nodes are
        accepted, so that the last token is always the target's draw after the last accepted node.
    """
    children: dict[tuple[int, int], int] = {}
    for node, (token, parent) in enumerate(zip(tokens_N, parents_N, strict=True)):
        children.setdefault((parent, token), node)
    path: list[int] = []
    tokens: list[int] = []
    node = -1
    while True:
        token = draw(node)
        tokens.append(token)
        child = children.get((node, token))
        if child is None or len(tokens) >= limit:
            return Walk(path=tuple(path), tokens=tuple(tokens))
        path.append(child)
        node = child
