"""Which shape a frozen tree gets: the one that was asked for, or one by verifier, within the limits of the request.

Decided before anything is drawn, so it cannot depend on a token. A tree that must be smaller loses whole levels.
"""

from __future__ import annotations

from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.trees.level_shapes import LevelShape, chain, parse

CHAIN_LENGTH = 4
"""Candidates of a chain that nobody gave a length. Longer ones are rarely accepted whole, which is what the drafter counts
on when it drafts ahead."""

BUSHES = tuple(parse(text) for text in ("2,2,2", "2,2,1", "2,2", "2", "1"))
"""Trees that nobody gave a shape, the most preferred first. Larger ones, such as the `4,2,2` of Yang et al. 2024 (arXiv 2401.06706), have
to be asked for: a frozen tree is verified whole, whatever its rows cost."""


def shape_of(speculation: Speculation, max_depth: int) -> LevelShape:
    """The shape of the next tree.

    Args:
        speculation: The request's options; the verifier must be one that needs draft probabilities.
        max_depth: Levels that the text has room for; 0 or less gives no tree.
    """
    depth = max(0, min(speculation.max_depth, max_depth))
    if speculation.tree_shape is not None:
        return fitting(speculation.tree_shape.prefix(depth), speculation.max_nodes)
    if VERIFIERS[speculation.verifier].is_chain_only:
        return chain(min(CHAIN_LENGTH, depth, speculation.max_nodes))
    return next(bush for bush in _cut(depth) if bush.num_nodes <= speculation.max_nodes)


def fitting(shape: LevelShape, max_nodes: int) -> LevelShape:
    """The first levels of a shape that hold at most so many nodes together."""
    while shape.num_nodes > max_nodes:
        shape = shape.prefix(shape.depth - 1)
    return shape


def _cut(depth: int) -> tuple[LevelShape, ...]:
    return tuple(bush.prefix(depth) for bush in BUSHES)
